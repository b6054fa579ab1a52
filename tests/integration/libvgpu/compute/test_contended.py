"""Tenants that contend for one simulated GPU under its arbiter (simulated figures)."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu.limits import ComputeMode
from libvgpu.sim import Machine
from support.shim.crowd import MS, Crowd, split
from support.shim.grants import WINDOWS, grant_mode
from support.sim.measured import measured_machine
from support.sim.mps_control import Control

SETTLE_SECONDS = 0.7
POINTS = 0.5
#: Windows are 10 ms long, so a tenth of a second has whole rounds of them.
TENTH = 0.1
FIRST_WAIT_NS = 65_536  # of wait_histogram.h, doubled for each further bucket
STRICT, ELASTIC = ComputeMode.STRICT, ComputeMode.ELASTIC

pytestmark = pytest.mark.virtual


@pytest.fixture
def crowd(machine: Machine, tmp_path: Path) -> Iterator[Crowd]:
    made = Crowd(machine, tmp_path)
    yield made
    made.close()


@pytest.fixture
def real_crowd(tmp_path: Path) -> Iterator[Crowd]:
    machine = measured_machine(tmp_path)
    made = Crowd(machine, tmp_path)
    yield made
    made.close()
    machine.remove()


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    machine = measured_machine(tmp_path)
    made = Control(machine, tmp_path / "mps")
    made.directory.mkdir()
    with made.running():
        yield made
    machine.remove()


Tenants = list[tuple[int, ComputeMode, int]]


@pytest.mark.parametrize(
    ("tenants", "expected", "most_ms"),
    [
        ([(10, ELASTIC, MS), (90, ELASTIC, MS)], [10, 90], 135),
        ([(30, STRICT, MS), (70, STRICT, MS // 5)], [30, 70], 68),
        ([(50, STRICT, MS), (50, STRICT, MS)], [50, 50], 17),
        ([(20, STRICT, MS), (30, ELASTIC, MS), (50, STRICT, 2 * MS)], [20, 30, 50], 68),
    ],
    ids=["10-90", "30-70", "50-50", "three"],
)
def test_everyone_gets_his_share_in_each_tenth_of_a_second_and_nothing_is_lost(
    crowd: Crowd, tenants: Tenants, expected: list[int], most_ms: int
) -> None:
    for percent, mode, kernel_ns in tenants:
        crowd.join(percent, mode, kernel_ns)
    time.sleep(SETTLE_SECONDS)
    before = crowd.waits()

    for _ in range(5):
        assert crowd.shares(TENTH) == pytest.approx(expected, abs=POINTS)

    held = [late - early for early, late in zip(before, crowd.waits(), strict=True)]
    longest = max(bucket for bucket, count in enumerate(held) if count)
    assert FIRST_WAIT_NS << longest <= most_ms * MS


def test_what_one_leaves_goes_to_the_other_and_comes_back_at_once(crowd: Crowd) -> None:
    for percent in (30, 70):
        crowd.join(percent, ELASTIC, MS)
    time.sleep(SETTLE_SECONDS)

    crowd.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(0.02)
    alone = crowd.shares(TENTH)
    crowd.processes[1].send_signal(signal.SIGCONT)
    back = crowd.shares(0.01)
    both = crowd.shares(TENTH)

    assert alone == pytest.approx([100, 0], abs=POINTS)
    assert back[1] > 45  # the other one's window has begun
    assert both == pytest.approx([30, 70], abs=10)
    assert crowd.shares(TENTH) == pytest.approx([30, 70], abs=POINTS)


def test_a_share_of_100_keeps_all_it_wants_from_one_that_has_what_is_left_over(
    crowd: Crowd,
) -> None:
    whole = crowd.join(100, STRICT, MS, is_arbitrated=False)  # alone, and so without a cap
    time.sleep(SETTLE_SECONDS)
    crowd.join(0, ELASTIC, MS)
    crowd.arbiter.add(whole.directory, 0)
    time.sleep(SETTLE_SECONDS)

    beside = crowd.shares()
    crowd.processes[0].kill()
    crowd.processes[0].wait()
    time.sleep(SETTLE_SECONDS)
    alone = crowd.shares()

    assert split(beside) == pytest.approx([99, 1], abs=1)
    assert sum(beside) > 90
    assert alone[1] > 90


def test_two_that_have_what_is_left_over_share_it(crowd: Crowd) -> None:
    crowd.join(40, STRICT, MS)
    crowd.join(0, ELASTIC, MS)
    crowd.join(0, ELASTIC, MS)
    time.sleep(SETTLE_SECONDS)

    shares = crowd.shares()

    assert shares[0] == pytest.approx(40, abs=2)
    assert shares[1] == pytest.approx(shares[2], abs=2)
    assert sum(shares) > 90


def test_changes_of_turns_cost_little_and_are_nobodys_gpu_time(real_crowd: Crowd) -> None:
    """On a GPU that takes its time to change processes, with shares that leave nothing over."""
    for percent in (30, 70):
        real_crowd.join(percent, STRICT, 2 * MS)
    time.sleep(2 * SETTLE_SECONDS)
    before_ns = real_crowd.booked_ns()
    start_ns = real_crowd.look()[0]

    shares = real_crowd.shares()

    passed_ns = real_crowd.look()[0] - start_ns
    booked = 100 * (real_crowd.booked_ns() - before_ns) / passed_ns
    assert split(shares) == pytest.approx([30, 70], abs=POINTS)
    assert sum(shares) > 97.5
    assert booked == pytest.approx(sum(shares), rel=0.02)


def test_clients_of_one_mps_server_keep_their_shares_by_windows(
    control: Control, tmp_path: Path
) -> None:
    """On the same GPU, where nothing is lost to changes of turns."""
    crowd = Crowd(control.machine, tmp_path, control.env()["CUDA_MPS_PIPE_DIRECTORY"])
    try:
        for percent in (30, 70):
            crowd.join(percent, STRICT, 2 * MS)
        time.sleep(2 * SETTLE_SECONDS)

        shares = crowd.shares()

        modes = [grant_mode(part.directory) for part in crowd.parts]
        pids = control.client_pids()
        counters = crowd.arbiter.counters()
    finally:
        crowd.close()
    assert sorted(pids) == sorted(process.pid for process in crowd.processes)
    assert modes == [WINDOWS, WINDOWS]
    assert min(tenant.windows for tenant in counters.tenants.values()) > 10
    assert split(shares) == pytest.approx([30, 70], abs=POINTS)
    assert sum(shares) > 98.5


def test_who_comes_and_who_goes_is_noticed_within_50_ms(crowd: Crowd) -> None:
    crowd.join(30, ELASTIC, MS)
    time.sleep(SETTLE_SECONDS)
    alone = crowd.shares(1)
    crowd.join(70, ELASTIC, MS)
    time.sleep(0.05)
    joined = crowd.shares(0.2)
    crowd.parts[1].close()
    time.sleep(0.05)
    left = crowd.shares(0.2)

    assert alone[0] > 90
    assert joined[0] == pytest.approx(30, abs=POINTS)
    assert left[0] > 85


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"core_percent": 20}, [20, 80]), ({"weight": 12}, [20, 80])],
    ids=["cap", "weight"],
)
def test_what_is_changed_holds_in_running_programs_50_ms_later(
    crowd: Crowd, change: dict[str, int], expected: list[int]
) -> None:
    one = crowd.join(50, STRICT, MS)
    crowd.join(48, ELASTIC, MS)
    time.sleep(SETTLE_SECONDS)
    one.change(**change)
    time.sleep(0.05)

    assert crowd.shares(2 * TENTH) == pytest.approx(expected, abs=POINTS)


def test_work_that_outlasts_its_window_is_paid_for_by_its_tenant(crowd: Crowd) -> None:
    crowd.join(50, ELASTIC, MS)
    crowd.join(50, ELASTIC, 200 * MS)
    time.sleep(2 * SETTLE_SECONDS)

    shares = crowd.shares(4)

    assert split(shares) == pytest.approx([50, 50], abs=2.6)  # half a kernel
    assert sum(shares) > 90
    assert crowd.arbiter.counters().overruns >= 5


def test_what_an_arrival_measures_beside_others_does_not_stay(crowd: Crowd) -> None:
    crowd.join(50, ELASTIC, MS)
    time.sleep(SETTLE_SECONDS)
    crowd.join(50, ELASTIC, 200 * MS, "time.sleep(0.6)")
    time.sleep(2 * SETTLE_SECONDS)

    steady, other = crowd.shares(2)

    assert other < 40
    assert steady + other > 90  # nobody waits for the end of work that has long ended


def test_when_the_arbiter_goes_everyone_keeps_to_his_cap(crowd: Crowd) -> None:
    crowd.join(30, STRICT, MS)
    crowd.join(60, STRICT, MS)
    time.sleep(SETTLE_SECONDS)
    crowd.arbiter.stop()
    time.sleep(0.5)

    shares = crowd.shares()

    assert shares[0] < 33 and shares[1] < 63
    assert sum(shares) > 60  # who is in the other's way now is measured next to him
