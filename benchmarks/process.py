"""What another process takes: memory, processor, descriptors. Read from /proc."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from libvgpu.errors import VgpuError

_KIB = 1024
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED in the low bits of a clock id that names a process


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of a process.

    Attributes:
        resident_bytes: all that is in memory now.
        own_bytes: of that, what no file lies behind.
        peak_bytes: the most that was ever resident.
    """

    resident_bytes: int
    own_bytes: int
    peak_bytes: int


def memory(pid: int) -> ProcessMemory:
    """Returns what a process has in memory.

    Raises:
        VgpuError: it has ended.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        kib = {
            name: int(rest.split()[0])
            for name, _, rest in (x.partition(":") for x in lines)
            if name in ("VmRSS", "RssAnon", "VmHWM")
        }
        return ProcessMemory(kib["VmRSS"] * _KIB, kib["RssAnon"] * _KIB, kib["VmHWM"] * _KIB)
    except (OSError, KeyError):
        raise VgpuError(f"process {pid} has ended") from None


def cpu_seconds(pid: int) -> float:
    """Returns the processor time of a process, its ended threads among them.

    Raises:
        VgpuError: it has ended.
    """
    try:
        return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
    except OSError:
        raise VgpuError(f"process {pid} has ended") from None


def descriptors(pid: int) -> int:
    """Returns how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Returns how many threads a process has."""
    return len(os.listdir(f"/proc/{pid}/task"))


def files_below(directory: Path) -> list[Path]:
    """Returns everything below a directory that is no directory."""
    return [path for path in directory.rglob("*") if not path.is_dir()]


def bytes_of(paths: Iterable[Path]) -> int:
    """Returns how long files are together; one that vanished meanwhile counts as empty."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
