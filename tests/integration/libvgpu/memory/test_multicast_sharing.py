"""Multicast objects that processes of a container give to each other take no memory."""

from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.shim.served import Served
from support.shim.slices import Slice, SliceOf
from support.shim.vmm_sharing import PROGRAM, hand_over

MIB = 1 << 20
LIMIT = 64 * MIB
PIECE = 40 * MIB

TEXT = (
    PROGRAM
    + f"""
def team():
    wanted = driver.CUmulticastObjectProp()
    wanted.numDevices, wanted.size, wanted.handleTypes = 1, {PIECE}, int(POSIX)
    handles.append(check(driver.cuMulticastCreate(wanted)))
    check(driver.cuMulticastAddDevice(handles[-1], 0))
    return len(handles) - 1
def bind(team, memory, bytes):
    return code(driver.cuMulticastBindMem(handles[team], 0, handles[memory], 0, bytes, 0))
"""
)


@pytest.fixture
def part(two_gpus: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(two_gpus, memory_bytes=LIMIT)


@pytest.mark.parametrize("is_neighbour", [False, True], ids=["own", "of-another-container"])
def test_an_imported_object_is_charged_to_nobody(
    two_gpus: Machine, part: Slice, slice_of: SliceOf, tmp_path: Path, is_neighbour: bool
) -> None:
    other = slice_of(two_gpus, memory_bytes=LIMIT) if is_neighbour else part
    exporter, importer = Served(other, TEXT), Served(part, TEXT)
    made = exporter.ask("team()")
    given = hand_over(exporter, importer, exporter.ask(f"export({made})"), tmp_path)

    at = importer.ask(f"import_handle({given})")
    code, address = importer.ask(f"map({at}, {PIECE})")
    assert (code, importer.ask("agree()")) == (0, 0)
    assert importer.ask(f"allocate({LIMIT})") == 0
    assert importer.ask(f"map({at}, {PIECE})")[0] == 0
    assert importer.ask("agree()") == LIMIT
    assert importer.ask(f"release({at})") == 0
    assert importer.ask(f"unmap({address}, {PIECE})") == 0
    assert importer.ask("agree()") == LIMIT


def test_what_an_importer_binds_is_charged_to_it_until_its_part_of_the_object_ends(
    part: Slice, tmp_path: Path
) -> None:
    exporter, importer = Served(part, TEXT), Served(part, TEXT)
    made = exporter.ask("team()")
    given = hand_over(exporter, importer, exporter.ask(f"export({made})"), tmp_path)
    at = importer.ask(f"import_handle({given})")
    memory = importer.ask(f"create({PIECE})")

    assert importer.ask(f"bind({at}, {memory}, {PIECE})") == 0
    assert importer.ask(f"release({memory})") == 0
    exporter.kill()
    assert importer.ask("agree()") == PIECE
    assert importer.ask(f"release({at})") == 0
    assert importer.ask("agree()") == 0
