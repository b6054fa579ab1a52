"""Contexts that are destroyed and made again, with one kernel launched in all of them."""

import time

import pytest

from libvgpu.sim import Machine
from support.lines import expect
from support.shim.slices import SliceOf

GIB = 1 << 30
CAP_PERCENT = 50
ROUNDS = 20
LOW_CAP_PERCENT = 10
MANY_ROUNDS = 80

# A kernel of a library has one handle for all contexts. Nothing waits for it before they end.
ROUND_AND_ROUND = """
import sys
from support.shim.cuda_client import *
check(driver.cuInit(0))
library = check(driver.cuLibraryLoadData(SPIN_PTX, None, None, 0, None, None, 0))
kernel = driver.CUfunction(int(check(driver.cuLibraryGetKernel(library, b"spin_ns"))))
duration = ctypes.c_ulonglong(3_000_000)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
for _ in range(int(sys.argv[1])):
    context = check(create_context())
    check(driver.cuMemAlloc(100 << 20))
    for _ in range(int(sys.argv[2])):
        check(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(arguments), 0))
    check(driver.cuCtxDestroy(context))
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("launches", [1, 2])
def test_a_context_made_again_does_not_hang_and_keeps_no_bytes(
    costly_machine: Machine, slice_of: SliceOf, launches: int
) -> None:
    part = slice_of(costly_machine, memory_bytes=GIB, core_percent=CAP_PERCENT)

    process = part.start(ROUND_AND_ROUND, str(ROUNDS), str(launches))
    expect(process, "done")

    told = part.usage().devices[0]
    assert told.launches == ROUNDS * launches
    assert told.peak_bytes > costly_machine.devices[0].profile.context_bytes
    assert (told.used_bytes, costly_machine.books()[0].memory_used_bytes) == (0, 0)


@pytest.mark.timing
def test_work_that_ends_with_its_context_is_measured_and_held(
    machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=LOW_CAP_PERCENT)

    start = time.monotonic()
    part.start(ROUND_AND_ROUND, str(MANY_ROUNDS), "1").communicate("\n", timeout=60)
    elapsed_ns = (time.monotonic() - start) * 1e9

    books = machine.books()[0]
    assert books.clients[0].launches == MANY_ROUNDS
    assert 100 * books.busy_ns / elapsed_ns < LOW_CAP_PERCENT + 3
