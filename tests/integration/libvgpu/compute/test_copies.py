"""Copies and fills under a cap: those inside one GPU are held to it, transfers are not its time."""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import PROFILES, Machine
from support import IS_LONG
from support.lines import next_line
from support.shim.slices import Slice, SliceOf
from support.sim.driver import driver_version

GIB = 1 << 30
BATCHES_SINCE = 12080
CAP_PERCENT = 30
RUN_SECONDS = 2.0 if IS_LONG else 1.2
KERNELS = 200
CAPTURED = 4
PARTS = 3
SPIN_NS = 20_000_000
#: So slow that the little which a test moves takes the GPU a quarter of a millisecond.
MEMORY_BYTES_PER_SECOND = 256 << 20
PCIE_BYTES_PER_SECOND = 256 << 20

PRELUDE = """
import struct, sys
from support.shim.cuda_client import *
cuda, u64 = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64
open_context()
stream = u64(int(check(driver.cuStreamCreate(0))))
BYTES = 64 << 10
target, source = (u64(int(check(driver.cuMemAlloc(BYTES)))) for _ in range(2))
def fill(): return cuda.cuMemsetD8Async(target, 7, u64(BYTES), stream)
def copy(): return cuda.cuMemcpyDtoDAsync_v2(target, source, u64(BYTES), stream)
def default(): return cuda.cuMemcpyDtoD_v2(target, source, u64(BYTES))
def half(of): return (u64 * 2)(of.value, of.value + BYTES // 2)
in_stream_order = struct.pack("6i", 1, 0, 0, 0, 0, 0)
def batch():
    sizes = (u64 * 2)(BYTES // 2, BYTES // 2)
    return cuda.cuMemcpyBatchAsync(half(target), half(source), sizes, u64(2), in_stream_order,
                                   (u64 * 1)(0), u64(1), (u64 * 1)(0), stream)
def turns():
    kinds = (fill, copy, default)
    turns.count = getattr(turns, "count", 0) + 1
    return kinds[turns.count % len(kinds)]()
"""

HELD = """
form, seconds = globals()[sys.argv[1]], float(sys.argv[2])
start, count = time.monotonic(), 0
while time.monotonic() - start < seconds:
    assert form() == 0
    count += 1
check(driver.cuCtxSynchronize())
print(time.monotonic() - start, count, flush=True)
sys.stdin.readline()
"""

# 4 MiB over PCIe take longer than the kernel before and behind them on the same stream.
TRANSFERS = """
kernels, name = int(sys.argv[1]), sys.argv[2]
spinner = Spinner(50_000)
host = u64(int(check(driver.cuMemAllocHost(BYTES))))
device = u64(int(check(driver.cuMemAlloc(BYTES))))
stream = u64(int(spinner.stream))
for _ in range(kernels):
    spinner.launch()
    if name == "cuMemcpyAsync":
        assert cuda.cuMemcpyAsync(device, host, u64(BYTES), stream) == 0
    elif name == "cuMemcpyHtoDAsync":
        assert cuda.cuMemcpyHtoDAsync_v2(device, host, u64(BYTES), stream) == 0
    else:
        assert cuda.cuMemcpy(device, host, u64(BYTES)) == 0
check(driver.cuCtxSynchronize())
print("done", flush=True)
sys.stdin.readline()
"""

CAPTURE = """
fills = int(sys.argv[1])
assert fill() == copy() == 0
assert cuda.cuStreamBeginCapture_v2(stream, 2) == 0
for _ in range(fills): assert fill() == copy() == 0
graph = check(driver.cuStreamEndCapture(driver.CUstream(stream.value)))
print(check(driver.cuGraphGetNodes(graph))[1], flush=True)
sys.stdin.readline()
"""

REFUSED = """
codes = [cuda.cuMemsetD8Async(u64(64), 0, u64(BYTES), stream),
         cuda.cuMemcpyDtoD_v2(target, u64(64), u64(BYTES)),
         cuda.cuMemsetD8Async(target, 0, u64(0), stream), cuda.cuMemcpy2D_v2(None),
         cuda.cuMemcpy3DAsync_v2(None, stream)]
print(*codes, flush=True)
sys.stdin.readline()
"""

# GPU 0 holds the source, GPU 1 the target; the copies are on a stream of GPU 0.
BETWEEN = """
parts = int(sys.argv[1])
contexts = [open_context(0)]
contexts.append(open_context(1))
far = u64(int(check(driver.cuMemAlloc(BYTES))))
open_context(0)
first, second = (u64(int(context)) for context in contexts)
for _ in range(parts):
    assert cuda.cuMemcpyPeerAsync(far, second, source, first, u64(BYTES), stream) == 0
    assert cuda.cuMemcpyDtoDAsync_v2(far, source, u64(BYTES), stream) == 0
assert cuda.cuMemcpyPeerAsync(target, first, source, first, u64(BYTES), stream) == 0
check(driver.cuCtxSynchronize())
print("done", flush=True)
sys.stdin.readline()
"""

# One kernel on both GPUs, several times; then whether it still answers as the driver does.
SEVERAL = """
parts = int(sys.argv[1])
class Part(ctypes.Structure):
    _fields_ = [("function", u64), ("shape", ctypes.c_uint * 7), ("stream", u64),
                ("parameters", u64)]
spinners = []
for device in (0, 1):
    open_context(device)
    spinners.append(Spinner(int(sys.argv[2])))
launches = (Part * 2)(*[
    Part(int(each._function), (ctypes.c_uint * 7)(1, 1, 1, 1, 1, 1, 0), int(each.stream),
         ctypes.addressof(each._arguments)) for each in spinners])
for _ in range(parts):
    assert cuda.cuLaunchCooperativeKernelMultiDevice(launches, 2, 0) == 0
for each in spinners: each.wait()
print(cuda.cuLaunchCooperativeKernelMultiDevice(None, 2, 0),
      cuda.cuLaunchCooperativeKernelMultiDevice(launches, 65, 0), flush=True)
sys.stdin.readline()
"""

pytestmark = pytest.mark.virtual


@pytest.fixture
def slow_machine(tmp_path: Path) -> Machine:
    """Two GPUs with slow memory and PCIe, whose contexts cost nothing."""
    profile = replace(
        PROFILES["h100-80g"],
        context_bytes=0,
        memory_bytes_per_second=MEMORY_BYTES_PER_SECOND,
        pcie_bytes_per_second=PCIE_BYTES_PER_SECOND,
    )
    return Machine.create([profile, profile], tmp_path / "slow", driver_version())


@pytest.fixture
def capped(slow_machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(slow_machine, memory_bytes=GIB, core_percent=CAP_PERCENT)


@pytest.fixture
def two_capped(slow_machine: Machine, slice_of: SliceOf, tmp_path: Path) -> Slice:
    """Both GPUs, each with a cap."""
    part = slice_of(slow_machine, memory_bytes=GIB)
    part.directory = tmp_path / "slice-of-two"
    limits = tuple(
        DeviceLimit(device.uuid, GIB, core_percent=CAP_PERCENT) for device in slow_machine.devices
    )
    create(part.directory, ContainerLimits("two", Family.VGPU, limits))
    return part


def started(part: Slice, code: str, *arguments: str) -> list[str]:
    """Starts a program, and returns what it prints while it stays."""
    process = part.start(PRELUDE + code, *arguments)
    assert process.stderr is not None
    words = next_line(process).split()
    assert words, process.stderr.read()
    return words


@pytest.mark.parametrize("form", ["fill", "copy", "default", "batch", "turns"])
def test_work_of_the_memory_is_held_to_the_cap(capped: Slice, form: str) -> None:
    if form == "batch" and driver_version() < BATCHES_SINCE:
        pytest.skip("batches came with CUDA 12.8")

    seconds, count = map(float, started(capped, HELD, form, str(RUN_SECONDS)))

    busy_ns = capped.machine.books()[0].busy_ns
    told = capped.usage().devices[0]
    assert 100 * busy_ns / 1e9 / seconds == pytest.approx(CAP_PERCENT, abs=3)
    assert told.launches == count
    assert told.gpu_time_ns == pytest.approx(busy_ns, rel=0.05)
    assert told.held_ns > 0


def test_the_same_work_fills_the_gpu_without_a_cap(
    slow_machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(slow_machine, memory_bytes=GIB)

    seconds, _ = map(float, started(part, HELD, "fill", "1"))

    assert part.machine.books()[0].busy_ns / 1e9 / seconds > 0.9


@pytest.mark.parametrize("name", ["cuMemcpy", "cuMemcpyAsync", "cuMemcpyHtoDAsync"])
def test_a_transfer_is_not_taken_for_gpu_time(capped: Slice, name: str) -> None:
    started(capped, TRANSFERS, str(KERNELS), name)

    told = capped.usage().devices[0]
    assert told.launches == KERNELS
    assert told.gpu_time_ns == pytest.approx(capped.machine.books()[0].busy_ns, rel=0.1)


def test_what_is_captured_is_not_charged(capped: Slice) -> None:
    (nodes,) = map(int, started(capped, CAPTURE, str(CAPTURED)))

    assert nodes == 2 * CAPTURED
    assert capped.usage().devices[0].launches == 2


def test_the_driver_refuses_what_it_would_refuse(capped: Slice) -> None:
    assert [int(word) for word in started(capped, REFUSED)] == [1, 1, 0, 1, 1]


def test_copies_between_gpus_take_no_gpu_time(two_capped: Slice) -> None:
    started(two_capped, BETWEEN, str(PARTS))

    assert [told.launches for told in two_capped.usage().devices] == [1, 0]
    assert two_capped.machine.books()[1].busy_ns == 0


def test_a_launch_on_several_gpus_is_charged_to_each(two_capped: Slice) -> None:
    codes = started(two_capped, SEVERAL, str(PARTS), str(SPIN_NS))

    assert codes == ["1", "1"]
    books = two_capped.machine.books()
    for told, gpu in zip(two_capped.usage().devices, books, strict=True):
        assert told.launches == gpu.clients[0].launches == PARTS
        # but the last one, at whose end nobody has looked yet
        assert told.gpu_time_ns == pytest.approx((PARTS - 1) * SPIN_NS, rel=0.001)
    assert any(told.held_ns > 0 for told in two_capped.usage().devices)
