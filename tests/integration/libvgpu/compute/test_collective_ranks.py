"""Programs whose rounds end in a kernel that waits on the GPU for another GPU's.

Both GPUs go on at the pace that the lower cap leaves. None is kept for longer than its own cap
allows.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.region import read_limits, write_limits
from libvgpu.sim import Machine
from support.shim.slices import SliceOf

GIB = 1 << 30
KERNELS, KERNEL_MS = 5, 1
WARM_UP_SECONDS, SECONDS = 3, 4
#: What collective_debt.h lets parts be ahead of their cap, and a millisecond.
MOST_AHEAD_SECONDS = 1.501
#: Of the second GPU, which is the one that the program launches on last.
LOWER_CAP = 30

PROGRAM = """
from support.shim.cuda_client import *
from support.shim.device_code import ptx
name, kernels, kernel_ns, warm_up, seconds = sys.argv[1].encode(), *map(int, sys.argv[2:])
CODE = ptx(f".visible .entry {name.decode()}(.param .u64 own, .param .u64 peer) {{ ret; }}")
check(driver.cuInit(0))
contexts = [check(driver.cuDevicePrimaryCtxRetain(gpu)) for gpu in range(2)]
words = []
for context in contexts:
    check(driver.cuCtxSetCurrent(context))
    words.append(int(check(driver.cuMemAlloc(4))))
    check(driver.cuMemsetD32(words[-1], 0, 1))
class Rank:
    def __init__(self, gpu):
        self.context = contexts[gpu]
        check(driver.cuCtxSetCurrent(self.context))
        check(driver.cuCtxEnablePeerAccess(contexts[1 - gpu], 0))
        spinner = Spinner(kernel_ns)
        self.stream = spinner.stream
        meets = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(CODE)), name))
        values = (ctypes.c_uint64 * 2)(words[gpu], words[1 - gpu])
        pointers = (ctypes.c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(values) + 8)
        check(driver.cuStreamBeginCapture(self.stream, driver.CUstreamCaptureMode(2)))
        for _ in range(kernels):
            spinner.launch()
        check(driver.cuLaunchKernel(meets, 1, 1, 1, 1, 1, 1, 0, self.stream,
                                    ctypes.addressof(pointers), 0))
        graph = check(driver.cuStreamEndCapture(self.stream))
        self.made = check(driver.cuGraphInstantiate(graph, 0))
    def launch(self):
        check(driver.cuCtxSetCurrent(self.context))
        check(driver.cuGraphLaunch(self.made, self.stream))
ranks = [Rank(gpu) for gpu in range(2)]
def work(seconds):
    start, rounds = time.monotonic(), 0
    while time.monotonic() < start + seconds:
        for rank in ranks:
            rank.launch()
        for rank in ranks:
            check(driver.cuStreamSynchronize(rank.stream))
        rounds += 1
    return rounds, time.monotonic() - start
work(warm_up)
print(*work(seconds))
"""

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("cap_percent", [40, 60, 90])
def test_both_gpus_go_at_the_pace_of_the_lower_cap(
    two_gpus: Machine, slice_of: SliceOf, cap_percent: int
) -> None:
    part = slice_of(two_gpus, memory_bytes=GIB, core_percent=cap_percent, gpus=2)
    limits = read_limits(part.directory).limits
    first, second = limits.devices
    lower = replace(limits, devices=(first, replace(second, core_percent=LOWER_CAP)))
    write_limits(part.directory, lower)
    arguments = map(str, (KERNELS, KERNEL_MS * 1_000_000, WARM_UP_SECONDS, SECONDS))

    rounds, seconds = map(float, part.run(PROGRAM, "cross_device_reduce_meet_peer", *arguments))

    paced_seconds = KERNELS * KERNEL_MS / 1e3 * 100 / LOWER_CAP
    assert seconds / rounds == pytest.approx(paced_seconds, rel=0.02)
    in_all_seconds = WARM_UP_SECONDS + seconds + MOST_AHEAD_SECONDS
    for books, percent in zip(two_gpus.books(), (cap_percent, LOWER_CAP), strict=True):
        assert books.busy_ns / 1e9 <= percent / 100 * in_all_seconds


RANK = """
import mmap, os
from support.shim.cuda_client import *
from support.shim.device_code import ptx
flags = sys.argv[1]
gpu, kernels, kernel_ns, warm_up, rounds = map(int, sys.argv[2:])
check(driver.cuInit(0))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(gpu))))
name = b"ncclDevKernel_meet_peer"
code = ptx(f".visible .entry {name.decode()}(.param .u64 own, .param .u64 peer) {{ ret; }}")
meets = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(code)), name))
words = mmap.mmap(os.open(flags, os.O_RDWR), 4096)
host = ctypes.addressof(ctypes.c_char.from_buffer(words))
check(driver.cuMemHostRegister(host, 4096, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
own = int(check(driver.cuMemHostGetDevicePointer(host, 0)))
values = (ctypes.c_uint64 * 2)(own + 4 * gpu, own + 4 * (1 - gpu))
pointers = (ctypes.c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(values) + 8)
spinner = Spinner(kernel_ns)
def work(rounds):
    start = time.monotonic()
    for _ in range(rounds):
        for _ in range(kernels):
            spinner.launch()
        check(driver.cuLaunchKernel(meets, 1, 1, 1, 1, 1, 1, 0, spinner.stream,
                                    ctypes.addressof(pointers), 0))
        spinner.wait()
    return time.monotonic() - start
work(warm_up)
print(work(rounds), flush=True)
input()
"""
WARM_UP_ROUNDS, ROUNDS = 60, 100


@pytest.mark.parametrize("caps", [(40, 30), (20, 25), (25, 90)])
def test_two_programs_go_at_the_pace_of_the_lower_cap(
    two_gpus: Machine, slice_of: SliceOf, tmp_path: Path, caps: tuple[int, int]
) -> None:
    flags = tmp_path / "flags"
    flags.write_bytes(bytes(4096))
    ranks = []
    for gpu, percent in enumerate(caps):
        part = slice_of(two_gpus, memory_bytes=GIB, core_percent=percent, first=gpu)
        numbers = (gpu, KERNELS, KERNEL_MS * 1_000_000, WARM_UP_ROUNDS, ROUNDS)
        ranks.append(part.start(RANK, str(flags), *map(str, numbers)))
    seconds = [float(next(rank.stdout)) for rank in ranks if rank.stdout]

    paced_seconds = KERNELS * KERNEL_MS / 1e3 * 100 / min(caps)
    assert [each / ROUNDS for each in seconds] == pytest.approx([paced_seconds] * 2, rel=0.02)
