"""Shares hold where latency, submission, changes of process, calls and kernels vary by a seed, the
clock is lower after a pause, and kernels side by side share memory bandwidth."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.limits import ComputeMode
from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import find_calibration
from support import IS_LONG, Compile
from support.lines import expect
from support.shim.crowd import MS, Crowd, split
from support.shim.kinds import KindsLoop, build_loop
from support.shim.slices import SliceOf
from support.sim.driver import driver_version
from support.sim.programs import PRELUDE

GIB = 1 << 30
SEEDS = range(1, 9) if IS_LONG else (1, 2)
SETTLE_SECONDS = 0.7
STRICT = ComputeMode.STRICT
#: Kinds, ns of each kernel, the period, and what is slow; a launch comes a gap after the last.
LOOP, GAP_NS = (8, 5_000, 0, 1_000_000), 11_700

pytestmark = [pytest.mark.virtual, pytest.mark.parametrize("seed", SEEDS)]
Varied = Callable[[int], Machine]


@pytest.fixture
def varied(tmp_path: Path) -> Iterator[Varied]:
    """Returns ``varied(seed)``: a machine of an H100 whose costs vary so."""
    made: list[Machine] = []

    def make(seed: int) -> Machine:
        calibration = find_calibration("h100").varied(seed)
        profile = replace(PROFILES["h100-80g"], calibration=calibration)
        made.append(Machine.create([profile], tmp_path / "varied", driver_version()))
        return made[-1]

    yield make
    for machine in made:
        machine.remove()


@pytest.fixture
def crowd(varied: Varied, tmp_path: Path, seed: int) -> Iterator[Crowd]:
    made = Crowd(varied(seed), tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kernel_ns", [MS // 50, MS // 5, 2 * MS])
def test_a_cap_that_binds_is_kept(crowd: Crowd, kernel_ns: int) -> None:
    crowd.join(50, STRICT, kernel_ns)
    time.sleep(SETTLE_SECONDS)

    assert crowd.shares() == pytest.approx([50], abs=0.3)


@pytest.mark.parametrize(
    "kernels_ns", [(2 * MS, 2 * MS), (2 * MS, MS // 5)], ids=["same", "different"]
)
def test_two_that_fill_the_gpu_divide_it(crowd: Crowd, kernels_ns: tuple[int, int]) -> None:
    for percent, kernel_ns in zip((30, 70), kernels_ns, strict=True):
        crowd.join(percent, STRICT, kernel_ns)
    time.sleep(2 * SETTLE_SECONDS)

    shares = crowd.shares(2)

    assert split(shares) == pytest.approx([30, 70], abs=0.6)
    assert sum(shares) > 97.5


#: For a while as long as the GPU is busy, then again after a pause.
PAUSES = """
open_context()
spinner, end = Spinner(200_000), time.monotonic() + 1
while time.monotonic() < end:
    spinner.launch()
spinner.wait()
print("ready", flush=True)
time.sleep(10)
import threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    spinner.launch()
"""


def tenths(machine: Machine) -> list[float]:
    """Returns which percentage of the GPU all have in each of the next tenths of a second."""
    found = []
    for _ in range(5):
        first = machine.books()[0]
        time.sleep(0.1)
        last = machine.books()[0]
        found.append(100 * (last.busy_ns - first.busy_ns) / (last.clock_ns - first.clock_ns))
    return found


def test_a_cap_of_50_is_kept_in_each_tenth_of_a_second_after_10_s_of_idling(
    varied: Varied, slice_of: SliceOf, seed: int
) -> None:
    """In the first one it may catch up what it had left of 50 ms before."""
    machine = varied(seed)
    process = slice_of(machine, memory_bytes=GIB, core_percent=50).start(PRELUDE + PAUSES)
    expect(process)
    time.sleep(10)

    shares = tenths(machine)

    assert 49 < shares[0] < 76
    assert shares[1:] == pytest.approx([50] * 4, abs=1)


def test_a_process_that_was_stopped_has_saved_up_no_more(crowd: Crowd) -> None:
    """It may be stopped while a launch waits for the cap, as by the freezer of its container."""
    crowd.join(50, STRICT, MS // 5)
    time.sleep(SETTLE_SECONDS)
    crowd.processes[0].send_signal(signal.SIGSTOP)
    time.sleep(10)
    crowd.processes[0].send_signal(signal.SIGCONT)

    shares = tenths(crowd.machine)

    assert 49 < shares[0] < 76
    assert shares[1:] == pytest.approx([50] * 4, abs=1)


#: Four streams of kernels that fill a quarter of the GPU each, and need 60 % of its bandwidth.
SIDE_BY_SIDE = """
import support.shim.cuda_client as client
client.SPIN_PTX = b"// vgpu_sim_dram_percent=60\\n" + client.SPIN_PTX
open_context()
spinners = [client.Spinner(200_000) for _ in range(4)]
print("ready", flush=True)
import threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    for each in spinners:
        check(cuda.cuLaunchKernel(each._function, 66, 1, 1, 1024, 1, 1, 0, each.stream,
                                  ctypes.addressof(each._arguments), 0))
"""


def test_kernels_that_lack_bandwidth_side_by_side_keep_the_cap(
    varied: Varied, slice_of: SliceOf, seed: int
) -> None:
    machine = varied(seed)
    found = []
    for core_percent in (100, 50):
        part = slice_of(machine, memory_bytes=GIB, core_percent=core_percent)
        process = part.start(PRELUDE + SIDE_BY_SIDE)
        expect(process)
        time.sleep(SETTLE_SECONDS)
        first = machine.books()[0]
        time.sleep(1)
        last = machine.books()[0]
        found.append(100 * (last.busy_ns - first.busy_ns) / (last.clock_ns - first.clock_ns))
        process.kill()
        process.wait()

    assert found == pytest.approx([100, 50], abs=1)


def test_a_launch_bound_program_keeps_its_speed_under_a_cap_that_does_not_bind(
    varied: Varied, slice_of: SliceOf, compile_program: Compile, seed: int
) -> None:
    machine = varied(seed)
    program = build_loop(compile_program)
    launches = []
    for core_percent in (100, 90):
        part = slice_of(machine, memory_bytes=GIB, core_percent=core_percent)
        loop = KindsLoop(program, part.environment(), *LOOP)
        loop.ask(f"gap {GAP_NS}")
        time.sleep(SETTLE_SECONDS)
        before = loop.ask()
        time.sleep(1)
        launches.append((loop.ask() - before).launches)
        loop.kill()

    assert launches[1] > 0.98 * launches[0]
