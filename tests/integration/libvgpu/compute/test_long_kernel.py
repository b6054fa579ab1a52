"""Kernels that last long: they do not hold up another stream, and few go ahead at the start."""

import pytest

from libvgpu.sim import Machine
from support.lines import next_line
from support.shim.slices import SliceOf

GIB = 1 << 30
CAP_PERCENT = 90
LONGEST_LAUNCH_SECONDS = 0.2
NOT_READY = 600
KNOWN_LAUNCHES, LAUNCHES_BESIDE = 30, 400

# The short kernels are known before; the long one, of another grid, has never been measured. Those
# next to it are more than may be in flight unmeasured, and fewer than the device's queue takes.
LONG = """
import os, sys
from support.shim.cuda_client import *
open_context()
short, long = Spinner(20_000), Spinner(3_000_000_000)
for _ in range(int(sys.argv[1])):
    short.launch()
    short.wait()
time.sleep(0.05)
check(driver.cuLaunchKernel(long._function, 64, 1, 1, 1, 1, 1, 0, long.stream,
                            ctypes.addressof(long._arguments), 0))
longest = 0.0
for _ in range(int(sys.argv[2])):
    start = time.monotonic()
    short.launch()
    longest = max(longest, time.monotonic() - start)
short.wait()  # so that no launch is counted ahead of time
print(longest, int(driver.cuStreamQuery(long.stream)[0]), flush=True)
sys.stdin.readline()
os._exit(0)
"""

pytestmark = pytest.mark.virtual


def test_a_long_kernel_does_not_block_another_stream(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)

    process = part.start(LONG, str(KNOWN_LAUNCHES), str(LAUNCHES_BESIDE))
    longest_seconds, state = next_line(process).split()

    assert float(longest_seconds) < LONGEST_LAUNCH_SECONDS
    assert int(state) == NOT_READY  # the long one ran all the while
    assert part.usage().devices[0].launches == KNOWN_LAUNCHES + 1 + LAUNCHES_BESIDE


QUEUED = """
import os
from support.shim.cuda_client import *
from libvgpu.sim import Machine
open_context()
long = Spinner(200_000_000)
began = time.monotonic()
while time.monotonic() < began + 1.2:
    long.launch()
print(Machine.open(os.environ["VGPU_SIM_MACHINE"]).books()[0].busy_ns, flush=True)
os._exit(0)
"""


def test_few_long_kernels_go_before_their_length_is_known(
    machine: Machine, slice_of: SliceOf
) -> None:
    """One is let go, as the GPU might wait for it; what they take is known then."""
    part = slice_of(machine, memory_bytes=GIB, core_percent=25)

    (busy_ns,) = part.run(QUEUED)

    assert int(busy_ns) <= 2.2 * 200_000_000
