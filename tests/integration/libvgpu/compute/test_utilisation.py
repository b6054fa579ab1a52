"""Utilisation under a slice: what the container's own processes had of the GPU, and nobody else's.

The figures are compared with the books of the simulated GPU.
"""

import json
import subprocess
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from libvgpu._native import ffi, lib
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine
from support.lines import expect
from support.shim.slices import Slice, SliceOf
from support.sim.nvml_programs import NVML_PRELUDE
from support.sim.programs import PRELUDE, busy

GIB = 1 << 30
MS = 1_000_000
KERNEL_NS = 1 * MS
SETTLE_SECONDS = 0.6
WINDOW_SECONDS = 0.4
POINTS = 10  # the windows of NVML and of the books are not the same ones
CAP_PERCENT = 30

HOLD = """
open_context()
check(cuda.cuMemAlloc(1 << 20))
print("ready", flush=True)
sys.stdin.read()
"""
READ = """
import json
samples = lambda function, *arguments: [
    [s.pid, s.smUtil] for s in answer(function, *arguments)]
def answer(function, *arguments):
    try:
        return function(*arguments)
    except nvml.NVMLError_NotFound:
        return []
handle = handles[0]
rates = nvml.nvmlDeviceGetUtilizationRates(handle)
kind, newest = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
_, traffic = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_MEMORY_UTILIZATION_SAMPLES, 0)
states = nvml.c_nvmlGpuDynamicPstatesInfo_t()
nvml.nvmlDeviceGetDynamicPstatesInfo(handle, states)
print(json.dumps({
    "states": [states.utilization[domain].percentage for domain in range(2)],
    "gpu": rates.gpu, "memory": rates.memory,
    "samples": [kind] + [s.sampleValue.uiVal for s in newest],
    "memory_samples": [s.sampleValue.uiVal for s in traffic],
    "by_process": samples(nvml.nvmlDeviceGetProcessUtilization, handle, 0),
}))
"""


def read(part: Slice, code: str = READ, *, shim: bool = True) -> Any:
    return json.loads(" ".join(part.run(NVML_PRELUDE + code, shim=shim)))


def working_program(kernel_ns: int) -> str:
    """Returns a program that launches without end and holds some memory."""
    return busy(kernel_ns).replace("open_context()\n", "open_context(); cuda.cuMemAlloc(1 << 20)\n")


def begin(part: Slice, code: str) -> subprocess.Popen[str]:
    process = part.start(PRELUDE + code)
    expect(process)
    return process


def books_percent(machine: Machine, pid: int) -> float:
    """Returns which part of the next moments a process has of the GPU."""

    def look() -> tuple[int, int]:
        books = machine.books()[0]
        return books.clock_ns, next(c.busy_ns for c in books.clients if c.pid == pid)

    start_ns, before_ns = look()
    time.sleep(WINDOW_SECONDS)
    end_ns, after_ns = look()
    return 100 * (after_ns - before_ns) / (end_ns - start_ns)


@pytest.fixture
def shared(machine: Machine, tmp_path: Path) -> Iterator[Callable[[str, int], Slice]]:
    """Returns ``shared(name, core_percent)``: slices of one GPU."""
    made: list[Slice] = []

    def make(name: str, core_percent: int) -> Slice:
        limit = DeviceLimit(machine.devices[0].uuid, GIB, core_percent=core_percent)
        create(tmp_path / name, ContainerLimits(name, Family.VGPU, (limit,)))
        made.append(Slice(machine, tmp_path / name))
        return made[-1]

    yield make
    for part in made:
        part.close()


Shared = Callable[[str, int], Slice]


@pytest.mark.virtual
def test_a_capped_container_sees_its_own_share_and_an_idle_one_nothing(
    machine: Machine, shared: Shared
) -> None:
    working, idle = shared("working", CAP_PERCENT), shared("idle", CAP_PERCENT)
    process = begin(working, working_program(KERNEL_NS))
    begin(idle, HOLD)
    time.sleep(SETTLE_SECONDS)

    true_percent = books_percent(machine, process.pid)
    seen, unseen = read(working), read(idle)

    assert true_percent == pytest.approx(CAP_PERCENT, abs=POINTS)
    assert seen["gpu"] == pytest.approx(true_percent, abs=POINTS)
    kind, newest = seen["samples"]
    assert (kind, newest) == (1, pytest.approx(true_percent, abs=POINTS))
    ((pid, percent),) = seen["by_process"]
    assert (pid, percent) == (process.pid, pytest.approx(true_percent, abs=POINTS))
    assert seen["states"][0] == pytest.approx(true_percent, abs=POINTS)
    assert (unseen["gpu"], unseen["memory"], unseen["states"]) == (0, 0, [0, 0])
    assert (unseen["samples"], unseen["by_process"]) == ([1, 0], [])


@pytest.mark.virtual
def test_kernels_longer_than_the_window_do_not_flicker(machine: Machine, shared: Shared) -> None:
    part = shared("long", 90)
    process = begin(part, working_program(250 * MS))
    time.sleep(2.5)  # nobody knows how long the first ones are, until they are done
    code = """
import json, time
def look():
    time.sleep(0.11)
    gpu = nvml.nvmlDeviceGetUtilizationRates(handles[0]).gpu
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC), gpu
print(json.dumps([look() for _ in range(12)]))
"""
    busy_ns: list[tuple[int, int]] = []  # of the process, at a moment
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(read, part, code)
        while not reading.done():
            (own,) = [c.busy_ns for c in machine.books()[0].clients if c.pid == process.pid]
            busy_ns.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC), own))
            time.sleep(0.01)
        looks: list[tuple[int, int]] = reading.result()

    def around(start_ns: int, end_ns: int) -> list[tuple[int, int]]:
        first = bisect_right(busy_ns, (start_ns,)) - 1
        return busy_ns[max(first, 0) : bisect_right(busy_ns, (end_ns,)) + 1]

    def percent(samples: list[tuple[int, int]]) -> float:
        return 100 * (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])

    def is_dense(samples: list[tuple[int, int]]) -> bool:
        """Whether nobody kept us from looking meanwhile."""
        return all(later - earlier < 30 * MS for (earlier, _), (later, _) in pairwise(samples))

    # A kernel that ran longer than was foreseen is made up for by a pause, which shows as one.
    before = [(gpu, around(at_ns - 250 * MS, at_ns)) for at_ns, gpu in looks]
    in_work = [gpu for gpu, samples in before if is_dense(samples) and percent(samples) > 80]
    assert len(in_work) >= 3
    assert min(in_work) >= 40, looks
    mean_percent = sum(gpu for _, gpu in looks) / len(looks)
    whole_percent = percent(around(looks[0][0] - 110 * MS, looks[-1][0]))
    assert mean_percent == pytest.approx(whole_percent, abs=2 * POINTS)


@pytest.mark.virtual
def test_an_uncapped_container_sees_the_drivers_figures_of_its_own_processes(
    machine: Machine, shared: Shared
) -> None:
    working, idle = shared("working", 100), shared("idle", 100)
    process = begin(working, working_program(KERNEL_NS))
    begin(idle, HOLD)
    time.sleep(SETTLE_SECONDS)

    seen, unseen = read(working), read(idle)

    assert seen["gpu"] == pytest.approx(books_percent(machine, process.pid), abs=POINTS)
    assert [pid for pid, _ in seen["by_process"]] == [process.pid]
    assert (unseen["gpu"], unseen["by_process"]) == (0, [])


@pytest.mark.virtual
def test_where_pids_tell_nothing_an_uncapped_container_sees_the_whole_gpu(shared: Shared) -> None:
    """As in a PID namespace of its own: the driver knows its processes by other numbers."""
    working, idle = shared("working", 100), shared("idle", 100)
    begin(working, working_program(KERNEL_NS))
    begin(idle, HOLD)
    path = idle.directory / "usage"
    image = bytearray(path.read_bytes())
    lib.usage_slot(ffi.from_buffer("unsigned char[]", image), 0).pid = 0x7FFFFFFF
    path.write_bytes(image)
    time.sleep(SETTLE_SECONDS)

    seen = read(idle)

    assert seen["gpu"] > 50
    assert seen["by_process"] == []


@pytest.mark.virtual
def test_samples_by_process_follow_the_drivers_protocol(shared: Shared) -> None:
    part = shared("working", CAP_PERCENT)
    process = begin(part, working_program(KERNEL_NS))
    begin(part, HOLD)
    time.sleep(SETTLE_SECONDS)
    code = """
import ctypes, json, time
old = nvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")
new = nvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessesUtilizationInfo")
whole = nvml._nvmlGetFunctionPointer("nvmlDeviceGetSamples")
Entry, Info = nvml.c_nvmlProcessUtilizationInfo_v1_t, nvml.c_nvmlProcessesUtilizationInfo_v1_t
LATER = ctypes.c_ulonglong(int((time.time() + 600) * 1e6))
def ask(room, since=ctypes.c_ulonglong(0), null=False):
    samples, count = (nvml.c_nvmlProcessUtilizationSample_t * 8)(), ctypes.c_uint(room)
    code = old(handles[0], None if null else samples, ctypes.byref(count), since)
    late = abs(samples[0].timeStamp / 1e6 - time.time()) < 5 if samples[0].pid else None
    return [code, count.value, samples[0].pid, late]
def ask_info(room, since=0, version=1 << 24 | ctypes.sizeof(Info)):
    entries = (Entry * 8)()
    info = Info(version, room, since, entries)
    code = new(handles[0], ctypes.byref(info))
    return [code, info.processSamplesCount, entries[0].pid, entries[0].smUtil > 10]
def ask_samples(kind, room, since=ctypes.c_ulonglong(0), null=False):
    samples, count, value = (nvml.c_nvmlSample_t * 4)(), ctypes.c_uint(room), ctypes.c_uint(9)
    code = whole(handles[0], kind, since, ctypes.byref(value), ctypes.byref(count),
                 None if null else samples)
    return [code, count.value]
print(json.dumps({
    "old": [ask(0, null=True), ask(0)[:2], ask(8), ask(8, LATER)],
    "new": [ask_info(0)[:2], ask_info(8), ask_info(8, LATER.value)[:2], ask_info(8, version=7)[0]],
    "whole": [ask_samples(1, 0, null=True), ask_samples(1, 4), ask_samples(1, 0)[0],
              ask_samples(2, 4, LATER)[0], ask_samples(0, 4)[0]],
    "null": [old(handles[0], None, None, ctypes.c_ulonglong(0)), new(handles[0], None)],
}))
"""

    said = read(part, code)

    assert said["old"][0][:2] == [7, 2]  # who holds memory may work
    assert said["old"][1] == [7, 1]
    assert said["old"][2] == [0, 1, process.pid, True]
    assert said["old"][3] == [6, 0, 0, None]
    assert said["new"] == [[7, 1], [0, 1, process.pid, True], [6, 0], 25]
    assert said["whole"] == [[0, 1], [0, 1], 2, 6, 0]
    assert said["null"] == [2, 2]


@pytest.mark.virtual
def test_a_gpu_that_the_slice_does_not_name_is_never_busy(
    two_gpus: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(two_gpus, memory_bytes=GIB)
    program = working_program(KERNEL_NS).replace("open_context()", "open_context(1)")
    stranger = part.start(PRELUDE + program, shim=False)
    expect(stranger, "ready")
    time.sleep(SETTLE_SECONDS)
    code = READ.replace("handle = handles[0]", "handle = handles[1]")

    seen = read(part, code)

    assert read(part, code, shim=False)["gpu"] > 50
    assert seen == {
        "gpu": 0,
        "memory": 0,
        "samples": [1, 0],
        "memory_samples": [0],
        "states": [0, 0],
        "by_process": [],
    }
