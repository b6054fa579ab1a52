"""Physical memory that goes to other processes by descriptor is charged once in a container."""

from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.shim.served import Served
from support.shim.slices import Slice, SliceOf
from support.shim.vmm_sharing import PROGRAM, hand_over

MIB = 1 << 20
LIMIT = 64 * MIB
PIECE = 40 * MIB


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=LIMIT)


def test_an_imported_handle_counts_once_and_passes_to_the_importer(
    part: Slice, tmp_path: Path
) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM)
    other = exporter.ask("create(4 * MIB)")
    made = exporter.ask(f"create({PIECE})")
    descriptors = [exporter.ask(f"export({at})") for at in (other, made)]
    assert exporter.ask("agree()") == PIECE + 4 * MIB

    given = hand_over(exporter, importer, descriptors[1], tmp_path)
    at = importer.ask(f"import_handle({given})")
    code, address = importer.ask(f"map({at}, {PIECE})")
    assert code == 0
    assert importer.ask("agree()") == PIECE + 4 * MIB
    exporter.kill()
    assert importer.ask(f"allocate({LIMIT - PIECE} + 1)") == 2
    assert importer.ask("agree()") == PIECE
    assert importer.ask(f"release({at})") == 0
    assert importer.ask("agree()") == PIECE
    assert importer.ask(f"unmap({address}, {PIECE})") == 0
    importer.ask(f"os.close({given})")
    assert importer.ask(f"allocate({LIMIT})") == 0
    assert importer.ask("agree()") == LIMIT


def test_released_memory_stays_charged_while_a_descriptor_of_it_is_open(
    part: Slice, tmp_path: Path
) -> None:
    exporter, holder = Served(part, PROGRAM), Served(part, PROGRAM)
    at = exporter.ask(f"create({PIECE})")
    descriptor = exporter.ask(f"export({at})")
    given = hand_over(exporter, holder, descriptor, tmp_path)
    exporter.ask(f"os.close({descriptor})")

    assert exporter.ask(f"release({at})") == 0
    assert exporter.ask("ledger_bytes()") == PIECE  # the other process could still import it
    assert exporter.ask(f"allocate({PIECE})") == 2
    holder.ask(f"os.close({given})")
    assert exporter.ask(f"allocate({PIECE})") == 0
    assert exporter.ask("agree()") == PIECE


def test_memory_whose_descriptor_is_closed_after_its_release_is_given_back_at_a_quiet_moment(
    part: Slice,
) -> None:
    exporter, other = Served(part, PROGRAM), Served(part, PROGRAM)
    at = exporter.ask(f"create({PIECE})")
    descriptor = exporter.ask(f"export({at})")

    exporter.ask(f"[release({at}), os.close({descriptor})]")  # in this order, as PyTorch does
    exporter.ask("code(driver.cuLibraryUnload(driver.CUlibrary(0)))")  # a look is due at once
    exporter.ask("code(driver.cuMemGetInfo())")

    assert other.ask(f"allocate({LIMIT})") == 0


def test_memory_of_another_container_is_charged_when_it_is_mapped(
    machine: Machine, part: Slice, slice_of: SliceOf, tmp_path: Path
) -> None:
    other = slice_of(machine, memory_bytes=LIMIT)
    exporter, importer = Served(other, PROGRAM), Served(part, PROGRAM)
    made = exporter.ask(f"create({PIECE})")
    given = hand_over(exporter, importer, exporter.ask(f"export({made})"), tmp_path)

    at = importer.ask(f"import_handle({given})")
    importer.ask("allocate(30 * MIB)")
    code, _ = importer.ask(f"map({at}, {PIECE})")
    assert (code, importer.ask("ledger_bytes()")) == (2, 30 * MIB)
    importer.ask("code(driver.cuDevicePrimaryCtxReset(0))")
    code, address = importer.ask(f"map({at}, {PIECE})")
    assert (code, importer.ask("ledger_bytes()")) == (0, PIECE)
    importer.ask(f"map({at}, {PIECE})")
    assert importer.ask("ledger_bytes()") == PIECE
    importer.ask(f"unmap({address}, {PIECE})")
    importer.ask(f"release({at})")
    assert importer.ask("ledger_bytes()") == PIECE  # still mapped once


def test_an_import_into_the_exporter_itself_counts_once(part: Slice) -> None:
    exporter = Served(part, PROGRAM)
    made = exporter.ask(f"create({PIECE})")
    descriptor = exporter.ask(f"export({made})")

    again = exporter.ask(f"import_handle({descriptor})")
    exporter.ask(f"os.close({descriptor})")
    assert exporter.ask("agree()") == PIECE
    assert exporter.ask(f"release({made})") == 0
    assert exporter.ask("agree()") == PIECE
    assert exporter.ask(f"release({again})") == 0
    assert exporter.ask("agree()") == 0


def test_a_handle_that_is_imported_twice_counts_once(part: Slice, tmp_path: Path) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM)
    made = exporter.ask(f"create({PIECE})")
    given = hand_over(exporter, importer, exporter.ask(f"export({made})"), tmp_path)

    handles = [importer.ask(f"import_handle({given})") for _ in range(2)]
    importer.ask(f"os.close({given})")
    exporter.kill()
    for left, at in zip((PIECE, 0), handles, strict=True):
        assert importer.ask("agree()") == PIECE
        assert importer.ask(f"release({at})") == 0
        assert importer.ask(f"allocate({LIMIT - left} + 1)") == 2
    assert importer.ask(f"allocate({LIMIT})") == 0
    assert importer.ask("agree()") == LIMIT


def test_pieces_of_one_maker_end_each_with_its_own_last_holder(part: Slice, tmp_path: Path) -> None:
    exporter, *importers = (Served(part, PROGRAM) for _ in range(3))
    for importer, bytes_ in zip(importers, (PIECE, 4 * MIB), strict=True):
        made = exporter.ask(f"create({bytes_})")
        given = hand_over(exporter, importer, exporter.ask(f"export({made})"), tmp_path)
        importer.ask(f"import_handle({given})")
    exporter.kill()
    importers[0].kill()  # who had the large one

    assert importers[1].ask(f"allocate({LIMIT - 4 * MIB})") == 0
    assert importers[1].ask("agree()") == LIMIT


def test_external_memory_counts_once_with_its_exporter_and_by_its_size_without(
    machine: Machine, part: Slice, slice_of: SliceOf, tmp_path: Path
) -> None:
    exporter, importer = Served(part, PROGRAM), Served(part, PROGRAM)
    made = exporter.ask(f"create({PIECE})")
    descriptor = exporter.ask(f"export({made})")
    given = hand_over(exporter, importer, descriptor, tmp_path)

    at = importer.ask(f"import_external({given}, {PIECE})")
    assert importer.ask("agree()") == PIECE
    exporter.kill()
    assert importer.ask(f"allocate({LIMIT})") == 2
    assert importer.ask("agree()") == PIECE
    assert importer.ask(f"destroy_external({at})") == 0
    assert importer.ask("agree()") == 0

    stranger = Served(slice_of(machine, memory_bytes=LIMIT), PROGRAM)
    made = stranger.ask(f"create({PIECE})")
    given = hand_over(stranger, importer, stranger.ask(f"export({made})"), tmp_path)
    importer.ask("allocate(30 * MIB)")
    assert importer.ask(f"import_external({given}, {PIECE})") == {"code": 2}
    assert importer.ask("ledger_bytes()") == 30 * MIB


def test_memory_of_another_interface_is_charged_until_nothing_made_of_it_is_left(
    part: Slice,
) -> None:
    program = Served(part, PROGRAM)
    at = program.ask(f"import_external(foreign({PIECE}), {PIECE})")
    assert program.ask("agree()") == PIECE
    buffers = [program.ask(f"buffer_of({at}, MIB)") for _ in range(2)]
    assert program.ask(f"destroy_external({at})") == 0
    assert program.ask("agree()") == PIECE
    for left, buffer in zip((PIECE, 0), buffers, strict=True):
        assert program.ask(f"code(driver.cuMemFree({buffer}))") == 0
        assert program.ask("agree()") == left
    assert program.ask(f"import_external(foreign({LIMIT + MIB}), {LIMIT + MIB})") == {"code": 2}
    program.ask(f"buffer_of(import_external(foreign({PIECE}), {PIECE}), MIB)")
    assert program.ask("code(driver.cuDevicePrimaryCtxReset(0))") == 0
    assert program.ask("agree()") == 0
