"""Work on an explicit stream is its own context's, also from a thread that has none current."""

import pytest

from libvgpu.sim import Machine
from support.lines import next_line
from support.shim.slices import Slice, SliceOf

GIB = 1 << 30
MIB = 1 << 20
OUT_OF_MEMORY = 2
CAP_PERCENT = 20
RUN_SECONDS = 2

IN_A_BARE_THREAD = """
import sys, threading
from support.shim.cuda_client import *
open_context()
spinner = Spinner(2_000_000)
def in_a_bare_thread(work):
    def body():
        assert int(check(driver.cuCtxGetCurrent())) == 0
        print(*work(), flush=True)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
"""
LAUNCH = """
in_a_bare_thread(lambda: [spinner.share_percent(float(sys.argv[1]))])
sys.stdin.readline()
"""
ALLOCATE = """
def allocate():
    for size in map(int, sys.argv[1:]):
        yield int(driver.cuMemAllocAsync(size, spinner.stream)[0])
in_a_bare_thread(allocate)
sys.stdin.readline()
"""


@pytest.mark.virtual
def test_launches_are_held_to_the_cap(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)

    process = part.start(IN_A_BARE_THREAD + LAUNCH, str(RUN_SECONDS))
    share = float(next_line(process))

    assert share == pytest.approx(CAP_PERCENT, abs=3)
    told, books = part.usage().devices[0], machine.books()[0]
    assert told.launches == books.clients[0].launches
    assert told.gpu_time_ns == pytest.approx(books.busy_ns, rel=0.1)
    assert told.held_ns > 0


def test_allocations_are_held_to_the_limit(machine: Machine, part: Slice) -> None:
    sizes = (4 * GIB, 600 * MIB, 600 * MIB, 400 * MIB)

    process = part.start(IN_A_BARE_THREAD + ALLOCATE, *map(str, sizes))
    results = [int(word) for word in next_line(process).split()]

    assert results == [OUT_OF_MEMORY, 0, OUT_OF_MEMORY, 0]
    assert part.usage().devices[0].used_bytes == 1000 * MIB
    assert machine.books()[0].memory_used_bytes == 1000 * MIB
