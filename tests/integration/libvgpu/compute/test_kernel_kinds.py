"""Several kinds of kernels in turn, never waited for, are held to the cap and never hang."""

import pytest

from libvgpu.sim import Machine
from support import IS_LONG
from support.lines import next_line
from support.shim.slices import SliceOf

GIB = 1 << 30
CAP_PERCENT = 50
RUN_SECONDS = 2.5 if IS_LONG else 1.5

# Each kind is a grid of its own, launched twice before the next one has its turn.
TURNS = """
import sys
from support.shim.cuda_client import *
kinds, seconds = int(sys.argv[1]), float(sys.argv[2])
open_context()
spinner = Spinner(0)
lengths = [ctypes.c_ulonglong(20_000 + 15_000 * kind) for kind in range(kinds)]
arguments = [(ctypes.c_void_p * 1)(ctypes.addressof(length)) for length in lengths]
start, gpu_ns, launches = time.monotonic(), 0, 0
while time.monotonic() - start < seconds:
    kind = launches // 2 % kinds
    check(driver.cuLaunchKernel(spinner._function, 1 + kind, 1, 1, 1, 1, 1, 0, spinner.stream,
                                ctypes.addressof(arguments[kind]), 0))
    gpu_ns += lengths[kind].value
    launches += 1
spinner.wait()
print(100 * gpu_ns / 1e9 / (time.monotonic() - start), launches, flush=True)
sys.stdin.readline()
"""

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("kinds", [2, 10])
def test_kinds_in_turn_share_the_cap(machine: Machine, slice_of: SliceOf, kinds: int) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)

    process = part.start(TURNS, str(kinds), str(RUN_SECONDS))
    share, launches = map(float, next_line(process).split())

    assert share == pytest.approx(CAP_PERCENT, abs=3)
    counted = part.usage().devices[0]
    assert counted.launches == launches == machine.books()[0].clients[0].launches
    assert counted.held_ns > 0
