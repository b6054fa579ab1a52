"""Multicast objects of the simulated GPU that several processes have, by file descriptor."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.sim.sharing import MULTICAST, Program, ending, hand_over

INVALID, ILLEGAL_STATE = 1, 401

#: Each program sees a GPU of its own, as the ranks of a communicator do.
TEXT = (
    MULTICAST
    + """
def make(devices=2): return check(cuda.cuMulticastCreate(wanted(4, devices, handle_types=1)))
def export(handle): return int(check(cuda.cuMemExportToShareableHandle(handle, POSIX, 0)))
def take(): return check(cuda.cuMemImportFromShareableHandle(given, POSIX))
def about(handle): return code(cuda.cuMemGetAllocationPropertiesFromHandle(handle))
def add(team): return code(cuda.cuMulticastAddDevice(team, 0))
first = own()
def taken(): return (own() - first) // GRANULE
"""
)


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[tuple[Program, ...]]:
    machine = Machine.create([PROFILES["h100-80g"]] * 2, tmp_path / "machine")
    with ending(*(Program(machine, TEXT, CUDA_VISIBLE_DEVICES=str(gpu)) for gpu in (0, 1))) as both:
        yield both


def share(ranks: tuple[Program, ...], path: Path) -> None:
    """Makes an object of one program known to both, as `group`."""
    ranks[0].ask("put('group', make())")
    hand_over(ranks[0], ranks[1], "export(group)", path)
    ranks[1].ask("put('group', take())")


def test_processes_complete_a_team_and_each_binds_its_own_memory(
    ranks: tuple[Program, ...], tmp_path: Path
) -> None:
    share(ranks, tmp_path / "line")
    one, other = ranks
    for rank in ranks:
        rank.ask("put('memory', create())")
    assert [one.ask("add(group)"), one.ask("add(group)")] == [0, INVALID]
    assert other.ask("bind(group, memory)") == ILLEGAL_STATE
    assert other.ask("add(group)") == 0
    for rank in ranks:
        assert rank.ask("[bind(group, memory), release(memory), taken()]") == [0, 0, 1]
        assert rank.ask("put('place', reserve(4))") == 0
        assert rank.ask("[map_at(place, group, 4), grant(place, 4)]") == [0, 0]
    assert one.ask("[unbind(group), taken()]") == [0, 0]
    assert other.ask("[release(group), taken(), unmap(place, 4), taken()]") == [0, 1, 0, 0]
    assert one.ask("[release(group), unmap(place, 4)]") == [0, 0]


def test_an_object_costs_its_importer_nothing_and_tells_nothing_of_itself(
    ranks: tuple[Program, ...], tmp_path: Path
) -> None:
    share(ranks, tmp_path / "line")
    assert [rank.ask("about(group)") for rank in ranks] == [INVALID, INVALID]
    assert [rank.ask("taken()") for rank in ranks] == [0, 0]
    assert ranks[1].ask("int(take()) == int(group)")
    assert ranks[1].ask("[release(group) for _ in range(3)]") == [0, 0, INVALID]


def test_an_object_outlives_the_process_that_made_it(
    ranks: tuple[Program, ...], tmp_path: Path
) -> None:
    share(ranks, tmp_path / "line")
    assert ranks[0].ask("add(group)") == 0
    ranks[0].process.kill()
    ranks[0].process.wait()
    assert ranks[1].ask("add(group)") == 0
    assert ranks[1].ask("[bind(group, create()), release(group)]") == [0, 0]


def test_an_object_without_a_handle_type_is_not_exported(ranks: tuple[Program, ...]) -> None:
    assert ranks[0].ask("export(team(4, (0,)))") == {"code": INVALID}
