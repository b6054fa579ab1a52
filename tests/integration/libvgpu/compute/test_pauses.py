"""A pause between a launch and the wait for it is the program's own time, not the GPU's."""

import pytest

from libvgpu.sim import Machine
from support.lines import next_line
from support.shim.slices import SliceOf

GIB = 1 << 30
CAP_PERCENT = 10
PAUSE_SECONDS = 0.5
# Billed, the pause would cost PAUSE_SECONDS * 100 / CAP_PERCENT; a launch costs 2 ms.
AT_ONCE_SECONDS = 0.1

PAUSE = """
import sys
from support.shim.cuda_client import *
open_context()
spinner = Spinner(200_000)
def timed_launch():
    start = time.monotonic()
    spinner.launch()
    return time.monotonic() - start
for _ in range(60):
    spinner.launch()
    spinner.wait()
time.sleep(0.1)
for _ in range(int(sys.argv[1])): spinner.launch()
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end: pass
spinner.wait()
waits = []
for _ in range(2):
    waits.append(timed_launch())
    spinner.wait()
print(*waits, flush=True)
sys.stdin.readline()
"""

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("launches_before", [1, 3])
def test_a_pause_before_a_wait_is_not_billed(
    machine: Machine, slice_of: SliceOf, launches_before: int
) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)

    process = part.start(PAUSE, str(launches_before), str(PAUSE_SECONDS))
    waits = [float(word) for word in next_line(process).split()]

    assert max(waits) < AT_ONCE_SECONDS
    told, books = part.usage().devices[0], machine.books()[0]
    assert told.held_ns > 0
    assert told.launches == books.clients[0].launches
    assert told.gpu_time_ns == pytest.approx(books.busy_ns, rel=0.1)
