"""Programs on a GPU that is calibrated as an H100."""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.calibration import call_names, find_calibration
from support.sim.programs import run, said_in

H100 = find_calibration("h100")
COST_NS = dict(zip(call_names(), H100.call_ns, strict=True))
COLD_NS = dict(zip(call_names(), H100.cold_call_ns, strict=True))
MS = 1_000_000


def calibrated(directory: Path, *, fast: bool = False) -> Machine:
    calibration = H100.without_call_costs() if fast else H100
    return Machine.create([replace(PROFILES["h100-80g"], calibration=calibration)], directory)


@pytest.mark.parametrize(("blocks", "rounds"), [(33, 1), (66, 1), (132, 2), (264, 4)])
def test_streams_run_side_by_side_as_their_blocks_fit(
    tmp_path: Path, blocks: int, rounds: int
) -> None:
    """As on an H100 with blocks of 1024 threads (benchmarks/results, gpu_ns)."""
    machine = calibrated(tmp_path / "machine", fast=True)
    code = f"""
open_context()
spinners = [Spinner({20 * MS}) for _ in range(4)]
gate = Spinner({400 * MS})
gate.launch()
passed = check(cuda.cuEventCreate(0))
check(cuda.cuEventRecord(passed, gate.stream))
for each in spinners:
    check(cuda.cuStreamWaitEvent(each.stream, passed, 0))
    check(cuda.cuLaunchKernel(each._function, {blocks}, 1, 1, 1024, 1, 1, 0, each.stream,
                              ctypes.addressof(each._arguments), 0))
for each in spinners:
    each.wait()
"""
    run(machine, code)

    assert machine.books()[0].busy_ns / MS == pytest.approx(400 + 20 * rounds, abs=0.1)


COSTS = """
open_context()
spinner = Spinner(1000)
event = check(cuda.cuEventCreate(0))
driver = ctypes.CDLL("libcuda.so.1")
stream, function = ctypes.c_void_p(int(spinner.stream)), ctypes.c_void_p(int(spinner._function))
arguments, memory = spinner._arguments, ctypes.c_void_p(int(check(cuda.cuMemAlloc(1 << 21))))
calls = {
    "cuLaunchKernel": lambda: driver.cuLaunchKernel(
        function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None),
    "cuEventRecord": lambda: driver.cuEventRecord(ctypes.c_void_p(int(event)), stream),
    "cuMemsetAsync": lambda: driver.cuMemsetD8Async(memory, 0, ctypes.c_size_t(1024), stream),
    "cuStreamQuery": lambda: driver.cuStreamQuery(stream),
}
def median(call, between):
    took = []
    for _ in range(500):
        begun = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - begun)
        between()
    spinner.wait()
    return sorted(took)[len(took) // 2]
def wait():
    spinner.wait()
    time.sleep(50e-6)
say(warm={name: median(call, lambda: None) for name, call in calls.items()},
    cold={name: median(call, wait) for name, call in calls.items()})
"""
#: What ctypes takes on top, and the simulation where it is not waited for.
OWN_NS = 3500


@pytest.mark.virtual
def test_calls_take_what_they_take_on_an_h100(tmp_path: Path) -> None:
    costly = said_in(calibrated(tmp_path / "costly"), COSTS)
    fast = said_in(calibrated(tmp_path / "fast", fast=True), COSTS)

    for name, median_ns in costly["warm"].items():
        assert COST_NS[name] <= median_ns < COST_NS[name] + OWN_NS, name
    launch_ns = costly["warm"]["cuLaunchKernel"]
    assert launch_ns - fast["warm"]["cuLaunchKernel"] > COST_NS["cuLaunchKernel"] / 3


@pytest.mark.virtual
def test_a_call_that_its_thread_has_not_made_for_long_takes_longer(tmp_path: Path) -> None:
    costly = said_in(calibrated(tmp_path / "costly"), COSTS)

    assert COLD_NS["cuEventRecord"] > OWN_NS
    assert COLD_NS["cuStreamQuery"] == 0
    for name, median_ns in costly["cold"].items():
        least_ns = COST_NS[name] + COLD_NS[name]
        assert least_ns <= median_ns < least_ns + OWN_NS, name


BLOCKS = """
open_context()
driver = ctypes.CDLL("libcuda.so.1")
address = ctypes.c_uint64()
def took(call, *arguments):
    begun = time.perf_counter_ns()
    assert call(*arguments) == 0
    return time.perf_counter_ns() - begun
def least(take, size, *more):
    taken, given = [], []
    for _ in range(50):
        taken.append(took(take, ctypes.byref(address), ctypes.c_size_t(size), *more))
        given.append(took(driver.cuMemFree_v2, address))
    return min(taken), min(given)
new = least(driver.cuMemAlloc_v2, 4096)
large = least(driver.cuMemAlloc_v2, 64 << 20)
managed = least(driver.cuMemAllocManaged, 4096, 1)
check(cuda.cuMemAlloc(4096))
room = least(driver.cuMemAlloc_v2, 4096)
kept = [check(cuda.cuMemAlloc(1 << 21)) for _ in range(2000)]
ending = took(driver.cuDevicePrimaryCtxReset_v2, 0)
say(new=new, large=large, managed=managed, room=room, ending=ending)
"""


@pytest.mark.virtual
def test_plain_pieces_take_longer_where_the_gpu_gives_or_gets_blocks(tmp_path: Path) -> None:
    said = said_in(calibrated(tmp_path / "machine"), BLOCKS)

    for new, large, room, name in zip(
        said["new"], said["large"], said["room"], ("cuMemAlloc", "cuMemFree"), strict=True
    ):
        assert COST_NS[name] <= room < COST_NS[name] + OWN_NS
        assert new - room == pytest.approx(H100.block_ns, abs=OWN_NS)
        assert large - new == pytest.approx(31 * H100.further_block_ns, abs=OWN_NS)
    assert said["managed"][0] < COST_NS["cuMemAllocManaged"] + 2 * OWN_NS  # measured with its own
    assert said["ending"] < 2000 * H100.block_ns  # and a context gives back what is left at once


@pytest.mark.virtual
def test_no_block_takes_time_where_calls_take_none(tmp_path: Path) -> None:
    said = said_in(calibrated(tmp_path / "machine", fast=True), BLOCKS)

    assert max(*said["new"], *said["large"]) < H100.block_ns


@pytest.mark.virtual
def test_an_event_between_kernels_takes_time_of_the_gpu(tmp_path: Path) -> None:
    machine = calibrated(tmp_path / "machine", fast=True)
    code = """
open_context()
spinner = Spinner(100_000)
first, last, between = (check(cuda.cuEventCreate(0)) for _ in range(3))
def row(record):
    spinner.launch()
    check(cuda.cuEventRecord(first, spinner.stream))
    for _ in range(400):
        spinner.launch()
        if record:
            check(cuda.cuEventRecord(between, spinner.stream))
    check(cuda.cuEventRecord(last, spinner.stream))
    spinner.wait()
    return check(cuda.cuEventElapsedTime(first, last)) * 1e6 / 400
say(without=row(False), recorded=row(True))
"""
    said = said_in(machine, code)

    assert said["recorded"] - said["without"] == pytest.approx(H100.event_ns, abs=200)


@pytest.mark.virtual
def test_a_first_context_takes_its_time_and_a_second_retain_none(tmp_path: Path) -> None:
    code = """
check(cuda.cuInit(0))
device = check(cuda.cuDeviceGet(0))
def retain():
    begun = time.monotonic_ns()
    check(cuda.cuDevicePrimaryCtxRetain(device))
    return time.monotonic_ns() - begun
say(first=retain(), second=retain())
"""
    said = said_in(calibrated(tmp_path / "machine"), code)

    assert said["first"] >= COST_NS["cuDevicePrimaryCtxRetain"]
    assert said["second"] < 50_000_000
