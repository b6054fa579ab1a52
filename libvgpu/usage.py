"""What `usage` says, as typed values: decoded from a private copy, every value bounded.

The file is written by the tenant and therefore hostile: it is never mapped, only ``pread``; a
count, offset or size that does not fit makes the file *damaged*, it never makes us read elsewhere.
Synchronised by nothing: a reader sees each 8-byte value whole, and sums may be a moment apart.
"""

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._native import ffi, lib
from .errors import RegionError
from .limits import WHOLE_CORE_PERCENT, ComputeMode, DeviceLimit, Family
from .region_files import calls_for, open_shared

#: Names of VGPU_KIND_*, by index.
KIND_NAMES = ("plain", "async", "managed", "context", "vmm", "array", "module", "other")

# A tenant may put thousands of byte locks on its file, and the kernel looks through all of them at
# each question. What cannot be asked in this time counts as alive.
PROBE_SECONDS = 0.02
_U63_MAX = (1 << 63) - 1
_ENTRY_NAME = re.compile(rb"[A-Za-z0-9_]{1,47}")


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
    """What one process, or the container, holds and did on the device ``device_index``.

    Attributes:
        device_index: its place in `limits`.
        used_bytes: memory held now; by what it was taken for in ``kind_bytes``.
        kind_bytes: by name of `KIND_NAMES`.
        peak_bytes: the most ever held.
        launches: kernels and graphs launched.
        gpu_time_ns: GPU time used.
        held_ns: time that launches were held back.
        windows: of the arbiter, in which there were launches.
        delay_counts: launches held back, by how long (`delay_quantile_ns`).
        is_estimated: ``gpu_time_ns`` and ``launches`` come from samples.
        share_percent: of the GPU's time, over the last second at most while there is work.
        refused_count: allocations refused; ``last_refusal`` is the last of them.
    """

    device_index: int
    used_bytes: int
    kind_bytes: dict[str, int]
    peak_bytes: int
    launches: int
    gpu_time_ns: int
    held_ns: int
    windows: int
    delay_counts: tuple[int, ...]
    is_estimated: bool
    share_percent: int
    refused_count: int
    last_refusal: Refusal | None

    @property
    def delay_p99_ns(self) -> int | None:
        """The delay that 99 of 100 held launches did not exceed; None: none was held."""
        return delay_quantile_ns(self.delay_counts, 0.99) if any(self.delay_counts) else None


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One process that uses a GPU, or pieces of memory of one that several may hold.

    Attributes:
        slot: its place in the file.
        pid: of the process, or of the pieces' maker, as that sees itself (its PID namespace).
        start_time_ticks: of that process.
        command: of that process.
        alive: whether its bytes are taken: it lives, or is ``ended``; for pieces: whether any
            process still holds one of them.
        ended: it has ended, and children that it forked keep its memory in the GPU.
        shared: whether it is pieces of memory.
        devices: what it has of each GPU.
        mps_thread_percentage: what MPS holds it to on its first GPU since it began; 0 not known.
        mps_pinned_mib: the same for pinned memory.
        unknown_entries: names that the driver answered and `hooks.def` does not have.
        moved_entries: hooked names that it answered with another version than `hooks.def` has.
        noted_entry: the first of these names; empty where none is known.
        generation: of the slot: another one is another process, or a piece somebody joined.
    """

    slot: int
    pid: int
    start_time_ticks: int
    command: str
    alive: bool
    shared: bool
    devices: tuple[DeviceUsage, ...]
    mps_thread_percentage: int = 0
    mps_pinned_mib: int = 0
    unknown_entries: int = 0
    moved_entries: int = 0
    noted_entry: str = ""
    generation: int = 0
    ended: bool = False


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
    with opened(directory / "usage") as descriptor:
        return _decode(directory / "usage", descriptor)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Opens a tenant's file for reading, without ever waiting for it.

    Raises:
        RegionBusyError: its container has a lease on it.
        RegionError: it cannot be opened, or read within this.
    """
    descriptor = open_shared(path, os.O_RDONLY)
    try:
        with calls_for(path, "read"):
            yield descriptor
    finally:
        os.close(descriptor)


def is_measured(family: Family, limit: DeviceLimit) -> bool:
    """Tells whether all GPU time is measured: the shim does so where it holds a cap in time."""
    return (
        family is Family.VGPU
        and limit.compute_mode is not ComputeMode.OFF
        and 0 < limit.core_percent < WHOLE_CORE_PERCENT
    )


def delay_quantile_ns(counts: Sequence[int], part: float) -> int:
    """Returns the delay that ``part`` (0 to 1) of the held launches did not exceed.

    Within a bucket the launches count as evenly spread, so it is right to within a factor of two.
    0 where no launch was held back.
    """
    wanted = part * sum(counts)
    for at, count in enumerate(counts):
        if count and wanted <= count:
            low_ns = lib.WAIT_HISTOGRAM_FIRST_NS << (at - 1) if at else 0
            high_ns = lib.WAIT_HISTOGRAM_FIRST_NS << at
            return int(low_ns + (high_ns - low_ns) * wanted / count)
        wanted -= count
    return 0


def is_slot_held(descriptor: int, slot: int) -> bool:
    """Tells whether the process that claimed ``slot`` lives, or children of it keep its memory.

    The kernel drops the lock with the last of them.
    """
    return _is_locked(descriptor, slot, lib.VGPU_LOCK_LIFE)


def _is_locked(descriptor: int, slot: int, which: int) -> bool:
    return bool(lib.life_is_held(descriptor, lib.VGPU_LOCK_BASE + 2 * slot + which))


def is_piece_held(descriptor: int, slot: int, at: int) -> bool:
    """Tells whether a process holds that piece of a slot for shared memory."""
    return bool(
        lib.life_is_held(descriptor, lib.VGPU_LOCK_PIECES + lib.VGPU_PIECE_LOCKS * slot + 1 + at)
    )


def piece_bytes(piece: Any) -> int:
    """Returns what a shared piece takes; 0 where there is none."""
    held = int(piece.bytes & ((1 << lib.VGPU_PIECE_KIND_AT) - 1))
    return min(held, int(lib.LEDGER_MAX_BYTES))


def _decode(path: Path, descriptor: int) -> ContainerUsage:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise RegionError(f"{path} is not a regular file")
    size = status.st_size
    most = lib.usage_file_bytes(lib.VGPU_MAX_DEVICES)
    image = os.pread(descriptor, most, 0)
    copy = ffi.from_buffer("unsigned char[]", image)
    header = ffi.cast("struct vgpu_usage_header *", copy)
    problem = lib.usage_check_header(copy, min(size, len(image)))
    if problem != 0 or size != len(image):
        raise RegionError(f"{path} is damaged or of another layout version ({size} bytes)")
    now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    windows = [
        ffi.new("struct utilisation_window *", lib.utilisation_window(copy, index, now_ns))
        for index in range(header.device_capacity)
    ]
    give_up_at = time.monotonic() + PROBE_SECONDS
    processes = tuple(
        _process(copy, slot, windows, *_life(descriptor, slot, give_up_at))
        for slot in range(min(header.hi_slot, lib.VGPU_SLOT_COUNT))
        if lib.usage_slot(copy, slot).gen % 2 == 1
    )
    totals = tuple(
        _total(copy, index, window, [p.devices[index] for p in processes])
        for index, window in enumerate(windows)
    )
    return ContainerUsage(text_of(header.allocation_id), totals, processes)


def _life(descriptor: int, slot: int, give_up_at: float) -> tuple[bool, bool]:
    """Returns whether a slot is held, and whether by children of its process alone."""
    if time.monotonic() > give_up_at:
        return True, False
    held = is_slot_held(descriptor, slot)
    return held, held and not _is_locked(descriptor, slot, lib.VGPU_LOCK_CLAIM)


def _process(
    copy: Any, slot: int, windows: Sequence[Any], alive: bool, ended: bool
) -> ProcessUsage:
    row = lib.usage_slot(copy, slot)
    return ProcessUsage(
        slot=slot,
        pid=int(row.pid),
        start_time_ticks=_bounded(row.start_time_ticks),
        command=text_of(row.command),
        alive=alive,
        shared=bool(row.pieces_device),
        devices=tuple(
            _pieces(copy, slot, index, row.pieces_device == index + 1)
            if 0 < row.pieces_device <= len(windows)
            else _device(copy, slot, index, each)
            for index, each in enumerate(windows)
        ),
        mps_thread_percentage=int(row.mps_thread_percentage),
        mps_pinned_mib=int(row.mps_pinned_mib),
        unknown_entries=min(row.unknown_entries, lib.VGPU_NOTED_ENTRIES),
        moved_entries=min(row.moved_entries, lib.VGPU_NOTED_ENTRIES),
        noted_entry=_entry_name(row.noted_entry),
        generation=_bounded(row.gen),
        ended=ended,
    )


def _pieces(copy: Any, slot: int, index: int, is_theirs: bool) -> DeviceUsage:
    """Returns what a slot for pieces of shared memory says; they are of one device."""
    row = lib.usage_slot_device(copy, slot, index)
    kinds = dict.fromkeys(KIND_NAMES, 0)
    for piece in row.pieces if is_theirs else ():
        kind = min(piece.bytes >> lib.VGPU_PIECE_KIND_AT, lib.VGPU_KIND_COUNT - 1)
        kinds[KIND_NAMES[kind]] += piece_bytes(piece)
    return DeviceUsage(
        device_index=index,
        used_bytes=min(row.bytes, lib.LEDGER_MAX_BYTES),
        kind_bytes=kinds,
        peak_bytes=min(row.bytes, lib.LEDGER_MAX_BYTES),
        launches=0,
        gpu_time_ns=0,
        held_ns=0,
        windows=0,
        delay_counts=(0,) * lib.VGPU_DELAY_BUCKETS,
        is_estimated=False,
        share_percent=0,
        refused_count=0,
        last_refusal=None,
    )


def _device(copy: Any, slot: int, index: int, window: Any) -> DeviceUsage:
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
            name: min(lib.usage_kind_bytes(row, at), lib.LEDGER_MAX_BYTES)
            for at, name in enumerate(KIND_NAMES)
        },
        peak_bytes=min(row.peak_bytes, lib.LEDGER_MAX_BYTES),
        launches=_bounded(row.launches),
        gpu_time_ns=_bounded(row.gpu_time_ns),
        held_ns=_bounded(row.held_ns),
        windows=_bounded(row.windows),
        delay_counts=tuple(row.delay_counts),
        is_estimated=bool(row.books & lib.VGPU_BOOKS_ESTIMATED),
        share_percent=int(lib.utilisation_of_slot(copy, slot, index, window)),
        refused_count=_bounded(row.refused_count),
        last_refusal=refusal,
    )


def _total(copy: Any, index: int, window: Any, parts: list[DeviceUsage]) -> DeviceUsage:
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
        windows=sum(p.windows for p in parts),
        delay_counts=tuple(
            sum(p.delay_counts[at] for p in parts) for at in range(lib.VGPU_DELAY_BUCKETS)
        ),
        is_estimated=any(p.is_estimated for p in parts),
        share_percent=int(lib.utilisation_of_container(copy, index, window)),
        refused_count=sum(p.refused_count for p in parts),
        last_refusal=max(refusals, key=lambda r: r.at_ns, default=None),
    )


def _bounded(value: int) -> int:
    """Bounds a counter, so that sums and metrics stay ordinary 64-bit numbers."""
    return min(int(value), _U63_MAX)


def _entry_name(raw: Any) -> str:
    """Returns the name of an entry point, empty where what is there is no name."""
    name = bytes(ffi.buffer(raw)).partition(b"\0")[0]
    return name.decode() if _ENTRY_NAME.fullmatch(name) else ""


def text_of(raw: Any) -> str:
    """Returns a C string of the tenant's as printable text: no control characters, no escapes."""
    text = bytes(ffi.buffer(raw)).split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)
