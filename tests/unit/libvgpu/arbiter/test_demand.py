"""How much of a GPU a tenant wants, from two counters of its own."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from libvgpu._native import ffi, lib
from support.shim.contention import MS, SECOND, START_NS

LOOK_NS = lib.DEMAND_LOOK_NS
MOST_COUNTER = (1 << 64) - 1


class Watched:
    """A tenant whose counters go on evenly, looked at every `LOOK_NS`."""

    def __init__(self) -> None:
        self.demand: Any = ffi.new("struct demand *")
        self.now_ns, self.charged_ns, self.stalled_ns = START_NS, 1, 0
        self.note()

    def note(self) -> None:
        lib.demand_note(self.demand, int(self.charged_ns), int(self.stalled_ns), self.now_ns)

    def run(self, seconds: float, used: float, stalled: float = 0, step_ns: int = LOOK_NS) -> None:
        for _ in range(int(seconds * SECOND / step_ns)):
            self.now_ns += step_ns
            self.charged_ns += round(used * step_ns)
            self.stalled_ns += round(stalled * step_ns)
            self.note()

    @property
    def wanted(self) -> float:
        return float(lib.demand_wanted(self.demand))


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize("used", [0.02, 0.16, 0.5, 0.9])
def test_a_launch_bound_program_wants_what_it_uses(watched: Watched, used: float) -> None:
    watched.run(0.5, used)

    assert watched.wanted == pytest.approx(used, rel=0.01)


@pytest.mark.parametrize("used", [0.1, 0.5, 0.9])
def test_one_that_is_held_whenever_it_does_not_run_wants_all(watched: Watched, used: float) -> None:
    watched.run(0.5, used, stalled=1 - used)

    assert watched.wanted == pytest.approx(1, abs=0.001)


def test_one_that_is_held_in_half_of_the_time_wants_twice_what_it_uses(watched: Watched) -> None:
    watched.run(0.5, 0.2, stalled=0.5)

    assert watched.wanted == pytest.approx(0.4, rel=0.01)


def test_a_loop_that_waits_for_each_kernel_wants_all_if_the_host_has_less_to_do() -> None:
    busy, idle = Watched(), Watched()
    busy.run(0.5, 0.6, stalled=0.6)  # 60 us of the GPU, and 40 us of the host, in turn
    idle.run(0.5, 0.2, stalled=0.2)  # 20 and 80

    assert busy.wanted == 1
    assert idle.wanted == pytest.approx(0.25, rel=0.01)


def test_a_long_kernel_that_is_charged_at_once_runs_in_the_time_after(watched: Watched) -> None:
    watched.run(0.5, 0.5)
    watched.charged_ns += 200 * MS
    wanted = []
    for _ in range(20):
        watched.run(LOOK_NS / SECOND, 0)
        wanted.append(watched.wanted)

    assert wanted == sorted(wanted) and wanted[-1] > 0.99  # all of it, for 200 ms
    watched.run(0.5, 0)
    assert watched.wanted == 0  # and nothing after


def test_kernels_longer_than_a_look_are_the_same_demand(watched: Watched) -> None:
    wanted = []
    for _ in range(20):
        watched.charged_ns += 50 * MS
        for _ in range(10):
            watched.run(LOOK_NS / SECOND, 0)
            wanted.append(watched.wanted)

    assert sum(wanted[100:]) / 100 == pytest.approx(0.5, abs=0.02)


def test_a_shim_that_counts_nothing_wants_all(watched: Watched) -> None:
    older = ffi.new("struct demand *")
    for look in range(100):
        lib.demand_note(older, 0, 0, START_NS + look * LOOK_NS)

    assert lib.demand_wanted(older) == 1
    assert lib.demand_wanted(ffi.new("struct demand *")) == 1  # nothing is known of it yet


def test_who_uses_nothing_wants_nothing(watched: Watched) -> None:
    watched.run(0.5, 0)

    assert watched.wanted == 0
    assert not lib.demand_is_alive(watched.demand)


@pytest.mark.parametrize("stalled", [0.6, 0.999])
def test_one_that_waits_for_what_is_not_charged_yet_wants_all(
    watched: Watched, stalled: float
) -> None:
    watched.run(0.5, 0, stalled=stalled)

    assert watched.wanted == 1


def test_use_is_forgotten_within_a_second(watched: Watched) -> None:
    watched.run(0.5, 1)
    assert lib.demand_is_alive(watched.demand)
    watched.run(lib.DEMAND_AVERAGE_NS / SECOND, 0)
    assert 0.2 < watched.wanted < 0.6
    watched.run(0.9, 0)

    assert watched.wanted == 0
    assert not lib.demand_is_alive(watched.demand)


def test_looks_that_come_too_soon_change_nothing(watched: Watched) -> None:
    often = Watched()
    often.run(0.5, 0.3, step_ns=LOOK_NS // 10)
    watched.run(0.5, 0.3)

    assert often.wanted == pytest.approx(watched.wanted, rel=0.001)


def garbage() -> Iterator[tuple[int, int]]:
    values = [0, 1, MOST_COUNTER, 1 << 63, (1 << 63) - 1, 12345, MOST_COUNTER - 5 * MS]
    for charged_ns in values:
        for stalled_ns in reversed(values):
            yield charged_ns, stalled_ns


def test_garbage_counters_stay_bounded_and_are_forgotten() -> None:
    demand = ffi.new("struct demand *")
    now_ns = START_NS
    for charged_ns, stalled_ns in garbage():
        now_ns += LOOK_NS
        lib.demand_note(demand, charged_ns, stalled_ns, now_ns)
        for part in (lib.demand_wanted(demand), demand.used_part, demand.stalled_part):
            assert math.isfinite(part) and 0 <= part <= 1
        assert 0 <= demand.unused_ns <= 2 * SECOND

    for step in range(300):  # two seconds of GPU time at most were claimed
        lib.demand_note(demand, 5, 5, now_ns + (step + 1) * LOOK_NS)
    assert lib.demand_wanted(demand) == 0


def test_counters_that_go_back_count_as_none(watched: Watched) -> None:
    watched.run(0.5, 0.5)
    watched.charged_ns -= 100 * MS  # a correction, or a lie
    watched.stalled_ns = 0
    before = watched.wanted
    watched.run(LOOK_NS / SECOND, 0)

    assert 0 < watched.wanted < before
