"""What `usage` says, as typed values: decoded from a private copy, every value bounded.

The file is written by the tenant and therefore hostile: it is never mapped, only ``pread``; a
count, offset or size that does not fit makes the file *damaged*, it never makes us read elsewhere.
Synchronised by nothing: a reader sees each 8-byte value whole, and sums may be a moment apart.
"""

import fcntl
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._native import ffi, lib
from .errors import RegionError

#: Names of VGPU_KIND_*, by index.
KIND_NAMES = ("plain", "async", "managed", "context", "vmm", "array", "module", "other")

_FLOCK = struct.Struct("hhxxxxqqixxxx")  # struct flock of x86-64 Linux
# A tenant may put thousands of byte locks on its file, and the kernel looks through all of them at
# each question. What cannot be asked in this time counts as alive.
_PROBE_SECONDS = 0.02
_U63_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last allocation that was refused; ``at_ns`` is nanoseconds since the epoch."""

    asked_bytes: int
    used_bytes: int
    limit_bytes: int
    at_ns: int
    kind: str


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What one process, or the container, holds and did on the device ``device_index``."""

    device_index: int
    used_bytes: int
    kind_bytes: dict[str, int]
    peak_bytes: int
    launches: int
    gpu_time_ns: int
    held_ns: int
    refused_count: int
    last_refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One process that uses a GPU, or one piece of memory that several hold.

    Attributes:
        slot: its place in the file.
        pid: of the process, or of the piece's maker, as that sees itself (its PID namespace).
        start_time_ticks: of that process.
        command: of that process.
        alive: whether it lives; for a piece: whether any process still holds it.
        shared: whether it is a piece of memory.
        devices: what it has of each GPU.
    """

    slot: int
    pid: int
    start_time_ticks: int
    command: str
    alive: bool
    shared: bool
    devices: tuple[DeviceUsage, ...]


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """A whole `usage` file: totals per device, and the processes whose slot is in use."""

    allocation_id: str
    devices: tuple[DeviceUsage, ...]
    processes: tuple[ProcessUsage, ...]


def read_usage(directory: Path) -> ContainerUsage:
    """Returns what the `usage` file in ``directory`` says.

    Raises:
        RegionError: the file is missing, damaged, or of another layout version.
    """
    path = directory / "usage"
    try:
        # O_NOFOLLOW: the name is the host's, but nothing is lost by being strict.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise RegionError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return _decode(path, descriptor)
    finally:
        os.close(descriptor)


def is_slot_held(descriptor: int, slot: int) -> bool:
    """Tells whether the process that claimed ``slot`` lives: the kernel drops its lock with it."""
    at = lib.VGPU_LOCK_BASE + 2 * slot + lib.VGPU_LOCK_LIFE
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    answer: tuple[Any, ...] = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
    return bool(answer[0] != fcntl.F_UNLCK)


def _decode(path: Path, descriptor: int) -> ContainerUsage:
    size = os.fstat(descriptor).st_size
    most = lib.usage_file_bytes(lib.VGPU_MAX_DEVICES)
    image = os.pread(descriptor, most, 0)
    copy = ffi.from_buffer("unsigned char[]", image)
    header = ffi.cast("struct vgpu_usage_header *", copy)
    status = lib.usage_check_header(copy, min(size, len(image)))
    if status != 0 or size != len(image):
        raise RegionError(f"{path} is damaged or of another layout version ({size} bytes)")
    give_up_at = time.monotonic() + _PROBE_SECONDS
    processes = tuple(
        _process(
            copy,
            slot,
            header.device_capacity,
            time.monotonic() > give_up_at or is_slot_held(descriptor, slot),
        )
        for slot in range(min(header.hi_slot, lib.VGPU_SLOT_COUNT))
        if lib.usage_slot(copy, slot).gen % 2 == 1
    )
    totals = tuple(
        _total(copy, index, [p.devices[index] for p in processes])
        for index in range(header.device_capacity)
    )
    return ContainerUsage(_text(header.allocation_id), totals, processes)


def _process(copy: Any, slot: int, device_capacity: int, alive: bool) -> ProcessUsage:
    row = lib.usage_slot(copy, slot)
    return ProcessUsage(
        slot=slot,
        pid=int(row.pid),
        start_time_ticks=_bounded(row.start_time_ticks),
        command=_text(row.command),
        alive=alive,
        shared=bool(row.shared_key[0] or row.shared_key[1]),
        devices=tuple(_device(copy, slot, index) for index in range(device_capacity)),
    )


def _device(copy: Any, slot: int, index: int) -> DeviceUsage:
    row = lib.usage_slot_device(copy, slot, index)
    refusal = None
    if row.refused_count:
        kind = min(row.refused_kind, lib.VGPU_KIND_COUNT - 1)
        refusal = Refusal(
            asked_bytes=_bounded(row.refused_asked_bytes),
            used_bytes=_bounded(row.refused_used_bytes),
            limit_bytes=_bounded(row.refused_limit_bytes),
            at_ns=_bounded(row.refused_at_ns),
            kind=KIND_NAMES[kind],
        )
    return DeviceUsage(
        device_index=index,
        used_bytes=min(row.bytes, lib.LEDGER_MAX_BYTES),
        kind_bytes={
            name: min(row.kind_bytes[at], lib.LEDGER_MAX_BYTES)
            for at, name in enumerate(KIND_NAMES)
        },
        peak_bytes=min(row.peak_bytes, lib.LEDGER_MAX_BYTES),
        launches=_bounded(row.launches),
        gpu_time_ns=_bounded(row.gpu_time_ns),
        held_ns=_bounded(row.held_ns),
        refused_count=_bounded(row.refused_count),
        last_refusal=refusal,
    )


def _total(copy: Any, index: int, parts: list[DeviceUsage]) -> DeviceUsage:
    used = lib.usage_device(copy, index).total_low & lib.LEDGER_MAX_BYTES
    refusals = [p.last_refusal for p in parts if p.last_refusal is not None]
    return DeviceUsage(
        device_index=index,
        used_bytes=used,
        kind_bytes={name: sum(p.kind_bytes[name] for p in parts) for name in KIND_NAMES},
        peak_bytes=max(used, sum(p.peak_bytes for p in parts)),
        launches=sum(p.launches for p in parts),
        gpu_time_ns=sum(p.gpu_time_ns for p in parts),
        held_ns=sum(p.held_ns for p in parts),
        refused_count=sum(p.refused_count for p in parts),
        last_refusal=max(refusals, key=lambda r: r.at_ns, default=None),
    )


def _bounded(value: int) -> int:
    """Bounds a counter, so that sums and metrics stay ordinary 64-bit numbers."""
    return min(int(value), _U63_MAX)


def _text(raw: Any) -> str:
    """Returns a C string of the tenant's as printable text: no control characters, no escapes."""
    text = bytes(ffi.buffer(raw)).split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)
