"""Kernels of collectives under a cap: charged, and not held back once the collective has begun."""

import pytest

from libvgpu.sim import Machine
from support.shim.slices import SliceOf

GIB = 1 << 30
CAP_PERCENT = 20
PARTS, PART_MS = 12, 20

PROGRAM = """
import sys
from support.shim.cuda_client import *
name, parts, part_ms = sys.argv[1].encode(), int(sys.argv[2]), int(sys.argv[3])
open_context()
plain = Spinner(1_000_000)
module = check(driver.cuModuleLoadData(SPIN_PTX.replace(b"spin_ns", name)))
function = check(driver.cuModuleGetFunction(module, name))
length = ctypes.c_ulonglong(part_ms * 1_000_000)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(length))
def launch():
    check(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, plain.stream,
                                ctypes.addressof(arguments), 0))
plain.launch(); plain.wait()
start = time.monotonic()
for _ in range(parts):
    launch(); plain.wait()
print(time.monotonic() - start)
start = time.monotonic()
plain.launch(); plain.wait()
print(time.monotonic() - start)
"""

pytestmark = pytest.mark.virtual


def run(machine: Machine, slice_of: SliceOf, name: str) -> tuple[float, float]:
    """Returns how long the parts took, and a plain kernel behind them, in seconds."""
    part = slice_of(machine, memory_bytes=GIB, core_percent=CAP_PERCENT)
    parts, after = map(float, part.run(PROGRAM, name, str(PARTS), str(PART_MS)))
    return parts, after


def test_the_parts_of_a_collective_follow_each_other_and_are_paid_for_later(
    machine: Machine, slice_of: SliceOf
) -> None:
    gpu_seconds = PARTS * PART_MS / 1e3

    parts, after = run(machine, slice_of, "ncclDevKernel_spin_ns")

    assert parts < 2 * gpu_seconds
    owed_seconds = gpu_seconds * 100 / CAP_PERCENT - parts
    assert after == pytest.approx(owed_seconds, rel=0.25)


def test_other_kernels_are_held_one_by_one(machine: Machine, slice_of: SliceOf) -> None:
    parts, after = run(machine, slice_of, "plain_spin_ns")

    assert parts > 0.8 * PARTS * PART_MS / 1e3 * 100 / CAP_PERCENT
    assert after < 0.4
