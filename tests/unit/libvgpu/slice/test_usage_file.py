"""`usage` is hostile: garbage in it misleads at most about its own row, and never raises oddly."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libvgpu._native import ffi, lib
from libvgpu.errors import RegionError
from libvgpu.ledger_view import Ledger, LedgerProcess, read_ledger
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, read_usage

LIMITS = ContainerLimits("alloc-1", Family.VGPU, (DeviceLimit("GPU-a", 1 << 30),))
HEADER_BYTES = 256


def test_a_new_file_is_empty_and_fully_allocated(tmp_path: Path) -> None:
    create(tmp_path / "slice", LIMITS)

    usage = read_usage(tmp_path / "slice")

    assert usage.allocation_id == "alloc-1"
    assert usage.processes == ()
    assert usage.devices[0].used_bytes == 0
    status = (tmp_path / "slice/usage").stat()
    assert status.st_blocks * 512 >= status.st_size


@given(st.binary(min_size=64, max_size=512), st.integers(0, 190_000))
@settings(max_examples=60)
def test_garbage_is_bounded_or_refused(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, at: int
) -> None:
    directory = tmp_path_factory.mktemp("region") / "slice"
    create(directory, LIMITS)
    path = directory / "usage"
    image = bytearray(path.read_bytes())
    image[at : at + len(garbage)] = garbage
    path.write_bytes(image[: path.stat().st_size])

    try:
        usage = read_usage(directory)
    except RegionError:
        return
    assert 0 <= usage.devices[0].used_bytes <= lib.LEDGER_MAX_BYTES
    assert len(usage.processes) <= lib.VGPU_SLOT_COUNT
    for process in usage.processes:
        assert process.command.isprintable() or process.command == ""
        assert 0 <= process.devices[0].gpu_time_ns < 1 << 63
    ledger = read_ledger(directory)
    assert 0 <= ledger.used_bytes[0] <= lib.LEDGER_MAX_BYTES
    assert len(ledger.processes) <= lib.VGPU_SLOT_COUNT


@pytest.mark.parametrize("size", [0, 100, HEADER_BYTES, 10_000, 1 << 20])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    create(tmp_path / "slice", LIMITS)
    os.truncate(tmp_path / "slice/usage", size)

    with pytest.raises(RegionError, match="damaged"):
        read_usage(tmp_path / "slice")
    with pytest.raises(RegionError, match="damaged"):
        read_ledger(tmp_path / "slice")


def edited(directory: Path, edit: Callable[[Any], None]) -> Path:
    """Makes a slice whose `usage` is changed by ``edit``, and returns its directory."""
    create(directory, LIMITS)
    image = bytearray((directory / "usage").read_bytes())
    file = ffi.from_buffer("unsigned char[]", image)
    ffi.cast("struct vgpu_usage_header *", file).hi_slot = 1
    edit(file)
    (directory / "usage").write_bytes(image)
    return directory


def as_version(number: int) -> Callable[[Any], None]:
    def edit(file: Any) -> None:
        ffi.cast("struct vgpu_usage_header *", file).layout_version = number

    return edit


@pytest.mark.parametrize("read", [read_usage, read_ledger])
@pytest.mark.parametrize("number", [0, lib.VGPU_LAYOUT_VERSION + 1])
def test_a_file_of_another_layout_is_refused(
    tmp_path: Path, number: int, read: Callable[[Path], object]
) -> None:
    directory = edited(tmp_path / "slice", as_version(number))

    with pytest.raises(RegionError, match="of another layout version"):
        read(directory)


def shared_slot(file: Any, piece_device: int) -> Any:
    row = lib.usage_slot(file, 0)
    row.gen, row.pid, row.pieces_device = 1, 11, piece_device
    return lib.usage_slot_device(file, 0, 0)


def test_a_piece_in_a_file_of_the_last_layout_is_read_as_one(tmp_path: Path) -> None:
    def edit(file: Any) -> None:
        as_version(lib.VGPU_LAYOUT_VERSION - 1)(file)
        row = shared_slot(file, 0x9E3779B97F4A7C15)  # half of its key
        row.bytes = row.kind_bytes[lib.VGPU_KIND_VMM] = 700

    (piece,) = read_usage(edited(tmp_path / "slice", edit)).processes

    assert piece.shared
    assert piece.devices[0].used_bytes == piece.devices[0].kind_bytes["vmm"] == 700


def test_pieces_of_one_slot_count_by_their_kinds(tmp_path: Path) -> None:
    def edit(file: Any) -> None:
        row = shared_slot(file, 1)
        row.bytes = 700
        for at, (kind, held) in enumerate([(lib.VGPU_KIND_VMM, 500), (lib.VGPU_KIND_PLAIN, 200)]):
            row.pieces[at].bytes = held | kind << lib.VGPU_PIECE_KIND_AT

    (pieces,) = read_usage(edited(tmp_path / "slice", edit)).processes

    kinds = {name: held for name, held in pieces.devices[0].kind_bytes.items() if held}
    assert (pieces.shared, kinds) == (True, {"vmm": 500, "plain": 200})


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "slice", LIMITS)
    (tmp_path / "slice/usage").rename(tmp_path / "elsewhere")
    (tmp_path / "slice/usage").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(RegionError, match="cannot be opened"):
        read_usage(tmp_path / "slice")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["FIFO", "directory"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    create(tmp_path / "slice", LIMITS)
    (tmp_path / "slice/usage").unlink()
    make(tmp_path / "slice/usage")

    with pytest.raises(RegionError, match="not a regular file"):
        read_usage(tmp_path / "slice")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"cuFutureCall", "cuFutureCall"),
        (b"x" * 48, ""),
        (b"x" * 47, "x" * 47),
        (b"cu\x1b[31mRed", ""),
        (b"cuCall\n", ""),
        (b"cu\xff\xfe", ""),
        (b"", ""),
    ],
)
def test_noted_entry_points_are_bounded_whatever_a_tenant_writes(
    tmp_path: Path, written: bytes, read: str
) -> None:
    create(tmp_path / "slice", LIMITS)
    path = tmp_path / "slice/usage"
    image = bytearray(path.read_bytes())
    file = ffi.from_buffer("unsigned char[]", image)
    ffi.cast("struct vgpu_usage_header *", file).hi_slot = 1
    row = lib.usage_slot(file, 0)
    row.gen, row.pid = 1, 11
    row.unknown_entries, row.moved_entries = (1 << 32) - 1, 3
    ffi.memmove(row.noted_entry, written, len(written))
    path.write_bytes(image)

    (process,) = read_usage(tmp_path / "slice").processes

    assert (process.unknown_entries, process.moved_entries) == (lib.VGPU_NOTED_ENTRIES, 3)
    assert process.noted_entry == read


def test_a_ledger_is_of_the_living_without_what_the_dead_still_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path / "slice", LIMITS)
    path = tmp_path / "slice/usage"
    image = bytearray(path.read_bytes())
    file = ffi.from_buffer("unsigned char[]", image)
    ffi.cast("struct vgpu_usage_header *", file).hi_slot = 5
    lib.usage_device(file, 0).total_low = 100
    for slot, (gen, pid, held, is_shared) in enumerate(
        [(1, 11, 20, 0), (1, 12, 30, 0), (2, 13, 0, 0), (1, 11, 50, 1)]  # of 12 only its bytes live
    ):
        row = lib.usage_slot(file, slot)
        row.gen, row.pid, row.pieces_device = gen, pid, is_shared
        row.pid_namespace, row.start_time_ticks = 4026531836, 5
        lib.usage_slot_device(file, slot, 0).bytes = held
    path.write_bytes(image)
    monkeypatch.setattr("libvgpu.ledger_view.is_slot_held", lambda descriptor, slot: slot != 1)

    assert read_ledger(tmp_path / "slice") == Ledger(
        (70,), frozenset({LedgerProcess(11, 4026531836, 5)}), (0,), (0,), "alloc-1"
    )
