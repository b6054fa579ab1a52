"""Loads of code while a neighbour allocates or frees: a slice is charged for its own code.

In a time of their own, so that the neighbour moves while the driver loads.
"""

import subprocess
from pathlib import Path

import pytest

from support.lines import expect, next_line, tell
from support.shim.kinds import costly_machine
from support.shim.slices import Slice, make_slice

pytestmark = pytest.mark.virtual

GIB = 1 << 30
LOAD_NS = 1_000_000_000
START = """
import sys, time
from support.shim.both_books import kind_bytes, ledger_bytes
from support.shim.cuda_client import *
from support.shim.device_code import *
MIB = 1 << 20
def load(mib):
    variable = f".visible .global .b8 big[{mib * MIB}];"
    return driver.cuModuleLoadData(ptx(variable + kernel("one")))
open_context()
held = check(driver.cuMemAlloc(64 * MIB))
check(driver.cuCtxSynchronize())
print("ready", flush=True); sys.stdin.readline()
"""
LOADS = """
answer = code(load(int(sys.argv[1])))
print(answer, kind_bytes("module") // MIB, flush=True); sys.stdin.readline()
check(driver.cuCtxSynchronize())
print((kind_bytes("module") + kind_bytes("other")) // MIB, flush=True); sys.stdin.readline()
"""
MOVES = "more = check(driver.cuMemAlloc(4 * MIB)); print('ready', flush=True); sys.stdin.readline()"
LOOKS = """
time.sleep(1.1)
check(driver.cuCtxSynchronize())
print("ready", flush=True); sys.stdin.readline()
"""
MANAGED = """
managed = check(driver.cuMemAllocManaged(256 * MIB, 1))
for _ in range(3): time.sleep(1.1); check(driver.cuCtxSynchronize())
"""
#: While the load is under way, which begins at the same time.
ALLOCATES = "time.sleep(0.5); more = check(driver.cuMemAlloc(8 << 30)); sys.stdin.readline()"
FREES = """
time.sleep(0.5); check(driver.cuMemFree(held)); sys.stdin.readline()
held = check(driver.cuMemAlloc(64 * MIB)); print("back", flush=True); sys.stdin.readline()
"""


@pytest.fixture
def part(tmp_path: Path) -> Slice:
    """A slice of 4 GiB on an H100 where a load takes a second."""
    machine = costly_machine(tmp_path, cuModuleLoad=LOAD_NS)
    return make_slice(machine, tmp_path / "slice", memory_bytes=4 * GIB)


def start_both(
    part: Slice, neighbours: str, mib: int
) -> "tuple[subprocess.Popen[str], subprocess.Popen[str]]":
    """Returns a bare neighbour, and a program that loads as the neighbour does its part."""
    neighbour = part.start(START + neighbours, shim=False)
    expect(neighbour)
    own = part.start(START + LOADS, str(mib))
    expect(own)
    tell(neighbour)
    tell(own)
    return neighbour, own


def test_while_neighbours_move_the_own_figure_counts(part: Slice) -> None:
    neighbour = part.start(START + MOVES + FREES, shim=False)
    expect(neighbour)
    own = part.start(START + LOOKS + LOADS, "64")
    expect(own)
    tell(neighbour)
    expect(neighbour)
    tell(own)
    expect(own)

    tell(neighbour)
    tell(own)

    assert next_line(own) == "0 64"


@pytest.mark.parametrize("mib", [2, 40])
def test_what_a_neighbour_takes_meanwhile_is_not_charged(part: Slice, mib: int) -> None:
    _, own = start_both(part, ALLOCATES, mib)

    assert next_line(own) == f"0 {mib}"


def test_what_a_neighbour_gave_back_meanwhile_is_charged_once_it_takes_that_again(
    part: Slice,
) -> None:
    neighbour, own = start_both(part, FREES, 64)
    assert next_line(own) == "0 0"  # the GPU has no more in use than before

    tell(neighbour)
    expect(neighbour, "back")
    tell(own)

    assert next_line(own) == "64"


def test_managed_memory_that_nobody_touched_hides_no_code(part: Slice) -> None:
    own = part.start(START + MANAGED + LOADS, "40")
    expect(own)
    tell(own)

    assert next_line(own) == "0 40"
