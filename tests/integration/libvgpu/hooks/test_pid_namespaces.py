"""Processes that are number 1 of a PID namespace each: NVML's lists tell them apart."""

import json
from collections.abc import Sequence

import pytest

from libvgpu.ledger_view import read_ledger
from libvgpu.sim import Machine
from support.shim.pid_namespaces import OWN_PROC, PROC_ABOVE, need_namespaces, pid_within
from support.shim.slices import Slice, SliceOf
from support.sim.nvml_programs import NVML_PRELUDE

MIB, GIB = 1 << 20, 1 << 30
PIDS_END = 1 << 22  # no process has a greater one

HOLD = """
import os, sys
from support.shim.cuda_client import *
open_context()
pieces = [int(check(driver.cuMemAlloc(size))) for size in map(int, sys.argv[1:])]
"""
STAY = """
print(os.getpid(), flush=True)
sys.stdin.readline()
"""
#: All but the first piece is exported, and so is a slot of its own in the slice.
SHARE = """
for piece in pieces[1:]:
    check(driver.cuIpcGetMemHandle(piece))
"""
LISTED = (
    NVML_PRELUDE
    + """
import json, os
print(json.dumps([os.getpid(), sorted(
    [p.pid, p.usedGpuMemory] for p in nvml.nvmlDeviceGetComputeRunningProcesses(handles[0]))]))
"""
)


@pytest.fixture(autouse=True)
def namespaces() -> None:
    need_namespaces()


def begin(part: Slice, code: str, *sizes: int, prefix: Sequence[str] = OWN_PROC) -> int:
    """Starts a process that holds so many bytes; returns the pid by which we know it."""
    process = part.start(code, *map(str, sizes), prefix=prefix)
    assert process.stdout is not None
    own_pid = process.stdout.readline()
    assert own_pid, process.communicate()[1]
    assert not prefix or own_pid == "1\n"
    return pid_within(process) if prefix else process.pid


def listed(
    part: Slice, *sizes: int, prefix: Sequence[str] = ()
) -> tuple[int, list[tuple[int, int]]]:
    """Returns what a process that holds so many bytes sees: its own pid, and pids with bytes."""
    code = (HOLD if sizes else "") + LISTED
    pid, rows = json.loads(" ".join(part.run(code, *map(str, sizes), prefix=prefix)))
    return pid, [(row[0], row[1]) for row in rows]


def test_from_outside_each_is_listed_once_by_the_pid_it_has_there(part: Slice) -> None:
    held = {
        begin(part, HOLD + STAY, 2 * MIB): 2 * MIB,
        begin(part, HOLD + STAY, 4 * MIB, prefix=PROC_ABOVE): 4 * MIB,
        begin(part, HOLD + STAY, 6 * MIB, prefix=()): 6 * MIB,
    }

    _, rows = listed(part)

    assert rows == sorted(held.items())


@pytest.mark.parametrize("prefix", [OWN_PROC, PROC_ABOVE], ids=["own proc", "proc of above"])
def test_within_one_is_itself_and_the_others_are_told_apart(
    prefix: tuple[str, ...], part: Slice
) -> None:
    for size in (2 * MIB, 4 * MIB):
        begin(part, HOLD + STAY, size)
    begin(part, HOLD + STAY, 6 * MIB, prefix=())

    pid, rows = listed(part, 8 * MIB, prefix=prefix)

    assert pid == 1
    assert dict(rows)[1] == 8 * MIB
    others = [(each, size) for each, size in rows if each != 1]
    assert sorted(size for _, size in others) == [2 * MIB, 4 * MIB, 6 * MIB]
    assert len({each for each, _ in others}) == 3
    assert all(each >= PIDS_END for each, _ in others)


def test_what_they_share_is_each_ones_own(part: Slice) -> None:
    held = {
        begin(part, HOLD + SHARE + STAY, 2 * MIB, 4 * MIB): 6 * MIB,
        begin(part, HOLD + SHARE + STAY, 2 * MIB, 16 * MIB): 18 * MIB,
    }

    _, rows = listed(part)

    assert rows == sorted(held.items())


def test_what_each_holds_is_its_own_figure(costly_machine: Machine, slice_of: SliceOf) -> None:
    """Also what the first context took, of which nobody said anything before."""
    cost = costly_machine.devices[0].profile.context_bytes
    one, other = (slice_of(costly_machine, memory_bytes=4 * GIB) for _ in range(2))
    for part in (one, other):
        part.change(context_bytes=0)
    begin(other, HOLD + STAY, 64 * MIB)
    begin(one, HOLD + STAY, 4 * MIB)
    begin(one, HOLD + STAY, 8 * MIB, prefix=PROC_ABOVE)

    ledgers = [read_ledger(part.directory) for part in (one, other)]

    # `context_bytes` is of exact measurements alone.
    assert [each.context_bytes for each in ledgers] == [(cost,), (cost,)]
    assert ledgers[0].used_bytes == (2 * cost + 12 * MIB,)


def test_in_slices_of_their_own_each_sees_itself_alone(machine: Machine, slice_of: SliceOf) -> None:
    one, other = (slice_of(machine, memory_bytes=GIB) for _ in range(2))
    begin(other, HOLD + STAY, 2 * MIB)

    assert listed(one, 4 * MIB, prefix=OWN_PROC) == (1, [(1, 4 * MIB)])
