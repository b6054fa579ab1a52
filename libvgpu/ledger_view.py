"""Who holds how much by a container's ledger: the little of `usage` that is asked for often.

Like `usage`, it never maps the file and bounds every value; it reads no further than slots were
ever used.
"""

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._native import ffi, lib
from .errors import RegionBusyError, RegionError
from .region import usage_bytes
from .usage import PROBE_SECONDS, is_piece_held, is_slot_held, opened, piece_bytes, text_of


@dataclass(frozen=True, slots=True)
class LedgerProcess:
    """A process as it names itself; a pid alone may be of several, each in its own namespace.

    Attributes:
        pid: as the process sees itself.
        pid_namespace: where it sees itself so, an inode; 0 where it did not tell.
        start_time_ticks: since the host's start; 0 where it did not tell.
    """

    pid: int
    pid_namespace: int
    start_time_ticks: int

    def is_the_one(self, pid: int, pid_namespace: int, start_time_ticks: int) -> bool:
        """Returns whether it is the process that the kernel tells so much of; 0 for unknown."""
        if self.pid != pid:
            return False
        if self.pid_namespace and pid_namespace and self.pid_namespace != pid_namespace:
            return False
        return 0 in (self.start_time_ticks, start_time_ticks) or (
            self.start_time_ticks == start_time_ticks
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a container's processes hold.

    Attributes:
        used_bytes: of each device, without what processes held that are dead.
        processes: those that live.
        context_bytes: of each device, what its processes say that their first context was measured
            to take; 0 where none was, or others may have a part in it.
        block_bytes: of each device, what they say that it gives memory in; 0 where nobody asked.
        allocation_id: whose ledger it says that it is.
    """

    used_bytes: tuple[int, ...]
    processes: frozenset[LedgerProcess]
    context_bytes: tuple[int, ...]
    block_bytes: tuple[int, ...]
    allocation_id: str = ""


def read_ledger(directory: Path) -> Ledger:
    """Returns who holds how much by the `usage` file in ``directory``; raises like
    `usage.read_usage`."""
    with opened(directory / "usage") as descriptor:
        copy, header = _beginning(directory / "usage", descriptor)
        give_up_at = time.monotonic() + PROBE_SECONDS
        used = [
            int(lib.usage_device(copy, index).total_low & lib.LEDGER_MAX_BYTES)
            for index in range(header.device_capacity)
        ]
        processes = set()
        slots = range(min(header.hi_slot, lib.VGPU_SLOT_COUNT))
        for slot in sorted(slots, key=lambda slot: int(lib.usage_slot(copy, slot).pieces_device)):
            row = lib.usage_slot(copy, slot)
            if row.gen % 2 == 0:
                continue
            if time.monotonic() <= give_up_at and not is_slot_held(descriptor, slot):
                for index in range(header.device_capacity):
                    used[index] -= int(lib.usage_slot_device(copy, slot, index).bytes)
            elif row.pieces_device:
                if row.pieces_device <= header.device_capacity:
                    used[row.pieces_device - 1] -= _let_go_bytes(copy, descriptor, slot, give_up_at)
            else:
                named = int(row.pid), int(row.pid_namespace), int(row.start_time_ticks)
                processes.add(LedgerProcess(*named))
        rows = [lib.usage_device(copy, index) for index in range(header.device_capacity)]
        used = [max(0, each) for each in used]
    return Ledger(
        tuple(used),
        frozenset(processes),
        tuple(map(_context_bytes, rows)),
        tuple(map(_block_bytes, rows)),
        text_of(header.allocation_id),
    )


def _let_go_bytes(copy: Any, descriptor: int, slot: int, give_up_at: float) -> int:
    """Returns the bytes of a slot's shared pieces that no living process holds."""
    row = lib.usage_slot_device(copy, slot, lib.usage_slot(copy, slot).pieces_device - 1)
    return sum(
        piece_bytes(row.pieces[at])
        for at in range(lib.VGPU_SLOT_PIECES)
        if time.monotonic() <= give_up_at and not is_piece_held(descriptor, slot, at)
    )


def damage(directory: Path, allocation_id: str) -> str:
    """Returns what a container did to its `usage`, so that nobody can read it.

    It is the end of a sentence about the container, and empty where it did nothing.

    Only what a container can do counts: not a file that is missing, and none where `limits` next to
    it, which no container can change, is not whole or of another layout version.
    """
    try:
        with opened(directory / "usage") as descriptor:
            status = os.fstat(descriptor)
            head = os.pread(descriptor, ffi.sizeof("struct vgpu_usage_header"), 0)
    except RegionBusyError:
        return "has a lease on its usage" if _usage_bytes(directory) else ""
    except (RegionError, OSError):
        return ""
    header = ffi.cast("struct vgpu_usage_header *", ffi.from_buffer("unsigned char[]", head))
    is_whole = len(head) == ffi.sizeof("struct vgpu_usage_header")
    is_sound = is_whole and lib.usage_check_header(header, status.st_size) == 0
    if is_sound and text_of(header.allocation_id) == allocation_id:
        return ""
    size = _usage_bytes(directory)
    if not size or not stat.S_ISREG(status.st_mode):
        return ""
    if status.st_size != size:
        return f"made its usage {status.st_size} bytes long, where it had {size}"
    if not is_sound:
        return "has overwritten the header of its usage"
    return "has put another allocation's name into its usage"


def _usage_bytes(directory: Path) -> int:
    """Returns how long `usage` was made, 0 where `limits` does not tell."""
    try:
        return usage_bytes(directory)
    except RegionError:
        return 0


def _block_bytes(row: Any) -> int:
    size = int(row.block_bytes)
    is_sane = lib.VGPU_LEAST_BLOCK_BYTES <= size <= lib.VGPU_MOST_BLOCK_BYTES
    return size if is_sane and size & (size - 1) == 0 else 0


def _context_bytes(row: Any) -> int:
    is_exact = row.context_measured_ns != 0 and not row.context_measured_ns & lib.VGPU_CONTEXT_ROUGH
    return min(int(row.context_bytes), lib.LEDGER_MAX_BYTES) if is_exact else 0


def _beginning(path: Path, descriptor: int) -> tuple[Any, Any]:
    """Returns a checked copy up to the last slot that was ever used, and its header."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise RegionError(f"{path} is not a regular file")
    head = os.pread(descriptor, ffi.sizeof("struct vgpu_usage_header"), 0)
    checked = ffi.cast("struct vgpu_usage_header *", ffi.from_buffer("unsigned char[]", head))
    whole = len(head) == ffi.sizeof("struct vgpu_usage_header")
    if whole and lib.usage_check_header(checked, status.st_size) == 0:
        slots = min(checked.hi_slot, lib.VGPU_SLOT_COUNT)
        wanted = checked.slot_offset + slots * checked.slot_stride
        # The header that was checked, whatever stands there by now.
        image = head + os.pread(descriptor, wanted - len(head), len(head))
        if len(image) == wanted:
            copy = ffi.from_buffer("unsigned char[]", image)
            return copy, ffi.cast("struct vgpu_usage_header *", copy)
    raise RegionError(f"{path} is damaged or of another layout version ({status.st_size} bytes)")
