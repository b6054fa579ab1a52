"""Streams that wait for the host or a word of memory: that is no GPU time."""

import time
from dataclasses import dataclass

import pytest

from libvgpu.sim import Machine
from support.lines import expect
from support.shim.slices import Slice, SliceOf
from support.sim.programs import PRELUDE

GIB = 1 << 30
MS = 1_000_000
WAIT_US = 1000
WARM_UP_SECONDS = 0.5
WINDOW_SECONDS = 1.0
POINTS = 0.5

pytestmark = pytest.mark.virtual

START = """
import threading
open_context()
spinner, other = Spinner({kernel_ns}), check(cuda.cuStreamCreate(1))
words = check(cuda.cuMemAlloc(8))
check(cuda.cuMemsetD32(words, 0, 2))
begun, ended = int(words), int(words) + 4
here, there = semaphore(), semaphore()
usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
print("ready", flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
turn = 0
while True:
    turn += 1
    for _ in range({kernels}):
        spinner.launch()
"""
HOST_FUNCTION = """
    check(cuda.cuLaunchHostFunc(spinner.stream, usleep, {wait_us}))
"""
WORD = """
    check(cuda.cuStreamWriteValue32(spinner.stream, begun, turn, 0))
    check(cuda.cuStreamWaitValue32(spinner.stream, ended, turn, 0))
    check(cuda.cuStreamWaitValue32(other, begun, turn, 0))
    check(cuda.cuLaunchHostFunc(other, usleep, {wait_us}))
    check(cuda.cuStreamWriteValue32(other, ended, turn, 0))
"""
SEMAPHORE = """
    signal(spinner.stream, here)
    wait(spinner.stream, there)
    wait(other, here)
    check(cuda.cuLaunchHostFunc(other, usleep, {wait_us}))
    signal(other, there)
"""
#: Two of them, and what streams do with one.
SEMAPHORES = """
def semaphore():
    made = cuda.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
    made.type = cuda.CUexternalSemaphoreHandleType.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
    made.handle.fd = os.eventfd(0)
    return check(cuda.cuImportExternalSemaphore(made))
def signal(stream, one):
    nothing = cuda.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()
    check(cuda.cuSignalExternalSemaphoresAsync([one], [nothing], 1, stream))
def wait(stream, one):
    nothing = cuda.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()
    check(cuda.cuWaitExternalSemaphoresAsync([one], [nothing], 1, stream))
"""


@dataclass(frozen=True)
class Seen:
    """GPU time of a program in a while: its percentage, and what of it the shim's books have."""

    share: float
    booked_part: float


def watch(machine: Machine, part: Slice, code: str) -> Seen:
    process = part.start(PRELUDE + SEMAPHORES + code)
    expect(process)
    time.sleep(WARM_UP_SECONDS)
    first, told_ns = machine.books()[0], part.usage().devices[0].gpu_time_ns
    time.sleep(WINDOW_SECONDS)
    last, told_ns = machine.books()[0], part.usage().devices[0].gpu_time_ns - told_ns
    process.kill()
    process.wait()
    busy_ns = last.busy_ns - first.busy_ns
    return Seen(100 * busy_ns / (last.clock_ns - first.clock_ns), told_ns / busy_ns)


@pytest.mark.parametrize("core_percent", [60, 80])
@pytest.mark.parametrize(
    ("kernels", "kernel_ns"),
    [(1, MS), (2, MS), (9, MS), (10, MS // 5)],
    ids=["one", "two", "nine", "short"],
)
@pytest.mark.parametrize(
    "waiting", [HOST_FUNCTION, WORD, SEMAPHORE], ids=["host function", "word", "semaphore"]
)
def test_what_a_stream_waits_for_is_not_billed(
    machine: Machine,
    slice_of: SliceOf,
    waiting: str,
    kernels: int,
    kernel_ns: int,
    core_percent: int,
) -> None:
    code = (START + waiting).format(kernels=kernels, kernel_ns=kernel_ns, wait_us=WAIT_US)
    alone = watch(machine, slice_of(machine, memory_bytes=GIB), code)

    seen = watch(machine, slice_of(machine, memory_bytes=GIB, core_percent=core_percent), code)

    # Alone it may get less than under a cap, where words are looked at sooner.
    assert min(core_percent, alone.share) - POINTS < seen.share < core_percent + POINTS
    assert seen.booked_part == pytest.approx(1, abs=0.01)
