"""`usage` and `limits` as agent and tools read them: bounded, or refused."""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import msgspec

from fuzz.shapes import Shapes
from libvgpu import ledger_view, usage
from libvgpu._native import ffi, lib
from libvgpu.errors import RegionError
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, read_limits, read_usage, usage_bytes

_SLICE = Path(mkdtemp(prefix="vgpu-fuzz-")) / "slice"
_DEVICES = tuple(DeviceLimit(f"GPU-{each}", 1 << 30) for each in range(2))
create(_SLICE, ContainerLimits("alloc-1", Family.VGPU, _DEVICES))
_USAGE, _LIMITS = ((_SLICE / name).read_bytes() for name in ("usage", "limits"))
_SLOTS, _PART = 4, 256
_USAGE_BYTES, _USAGE = len(_USAGE), _USAGE[: len(_USAGE) // (lib.VGPU_SLOT_COUNT // _SLOTS // 2)]


def _parts(usage: bytearray, limits: bytearray) -> list[tuple[bytearray, int]]:
    """Returns where each part of the files begins: headers, rows, slots, copies."""
    file = ffi.from_buffer("unsigned char[]", usage)
    start = int(ffi.cast("uintptr_t", file))
    rows = [lib.usage_device(file, each) for each in range(len(_DEVICES))]
    for slot in range(_SLOTS):
        rows.append(lib.usage_slot(file, slot))
        rows += [lib.usage_slot_device(file, slot, each) for each in range(len(_DEVICES))]
    head = ffi.cast("struct vgpu_limits_header *", ffi.from_buffer("unsigned char[]", limits))
    return [
        (usage, 0),
        *((usage, int(ffi.cast("uintptr_t", row)) - start) for row in rows),
        (limits, 0),
        *((limits, at + more) for at in head.copy_offset for more in (0, 128, 192)),
        (limits, int(head.grant_offset)),
    ]


def _edited(shapes: Shapes) -> tuple[bytes, bytes]:
    usage, limits = bytearray(_USAGE), bytearray(_LIMITS)
    head = ffi.cast("struct vgpu_usage_header *", ffi.from_buffer("unsigned char[]", usage))
    head.hi_slot = _SLOTS
    for slot in range(_SLOTS):  # as programs claim them; the last is for shared pieces
        row = lib.usage_slot(ffi.from_buffer("unsigned char[]", usage), slot)
        row.gen, row.pid, row.pieces_device = 1, 10 + slot, slot == _SLOTS - 1
    parts = _parts(usage, limits)
    copies = [at for file, at in parts if file is limits][1:7:3]
    copy_bytes = copies[1] - copies[0]
    seals = shapes.byte() & 1
    while shapes:
        file, at = shapes.pick(parts)
        at += shapes.byte() % _PART
        value = (shapes.number() % (1 << 64)).to_bytes(8, "little")[: 1 + shapes.byte() % 8]
        file[at : at + len(value)] = value
    for at in copies if seals else ():
        copy = ffi.from_buffer("unsigned char[]", limits) + at
        sum_ = lib.vgpu_checksum(copy + 8, copy_bytes - 8)
        limits[at : at + 8] = int(sum_).to_bytes(8, "little")
    return bytes(usage), bytes(limits)


@contextmanager
def _held(how: int) -> Iterator[None]:
    """Holds locks of some slots, as programs do; with all bits nobody has time to ask for them."""
    seconds = -1.0 if how == 255 else 60.0
    with (
        patch.object(usage, "PROBE_SECONDS", seconds),
        patch.object(ledger_view, "PROBE_SECONDS", seconds),
        open(os.open(_SLICE / "usage", os.O_RDWR | os.O_NONBLOCK), closefd=True) as file,
    ):
        places = [lib.VGPU_LOCK_BASE + at for at in range(2 * _SLOTS - 2)]
        first = lib.VGPU_LOCK_PIECES + lib.VGPU_PIECE_LOCKS * (_SLOTS - 1)
        for bit, at in enumerate((*places, lib.VGPU_LOCK_BASE + 2 * _SLOTS - 2, first + 1)):
            if how >> bit & 1 and (_SLICE / "usage").is_file():
                lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        yield


def one(data: bytes) -> None:
    """Reads both files."""
    shapes = Shapes(data)
    cut, held = shapes.byte(), shapes.byte()
    books, limits = _edited(shapes)
    (_SLICE / "usage").unlink(missing_ok=True)
    if cut == 255:
        os.mkfifo(_SLICE / "usage")
    else:
        (_SLICE / "usage").write_bytes(books[: cut * 1000] if cut else books)
        if not cut:
            os.truncate(_SLICE / "usage", _USAGE_BYTES)
    (_SLICE / "limits").chmod(0o600)
    (_SLICE / "limits").write_bytes(limits[: cut * 8] if cut & 1 else limits)
    with _held(held):
        _read()


def _read() -> None:
    for read in (read_limits, usage_bytes):
        with contextlib.suppress(RegionError):
            read(_SLICE)
    ledger_view.damage(_SLICE, "alloc-1")
    try:
        found = read_usage(_SLICE)
        ledger = ledger_view.read_ledger(_SLICE)
    except RegionError:
        return
    msgspec.json.encode(found)
    assert all(0 <= each.used_bytes <= lib.LEDGER_MAX_BYTES for each in found.devices)
    assert all(0 <= each <= lib.LEDGER_MAX_BYTES for each in ledger.used_bytes)
    assert len(found.processes) <= lib.VGPU_SLOT_COUNT
    for process in found.processes:
        assert process.command.isprintable()
        for device in process.devices:
            assert 0 <= device.gpu_time_ns < 1 << 63 and device.share_percent <= 100
