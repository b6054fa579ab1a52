"""Processes as ``/proc`` shows them, told apart though their ids are used again.

Only files that the kernel writes from its own records are read: nothing here touches a file system,
a page or a name of the process, since a tenant may put something there that never answers (so no
``cmdline``, no ``environ``, nothing below ``root`` or ``cwd``). Every read is bounded. Names in
these files are a tenant's to choose, and hold any character but a newline: a newline alone ends a
line, as nothing else does that Python takes for an end.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .cgroups import PodCgroup, pod_cgroup

PROC = Path("/proc")
#: A tenant may have as many mounts and mappings as it likes; those that tell come early.
MOST_BYTES = 1 << 20
_NAMESPACE_PIDS = re.compile(r"^NSpid:\s*(.+)$", re.M)
_ESCAPED = re.compile(r"\\([0-7]{3})")
_DELETED = "//deleted"
#: Among the flags of a thread's ``stat``: it runs no code of its program any more.
_PF_EXITING = 4
#: Reads the mounts of a namespace from its own root. What may look up a name is done before.
_IN_NAMESPACE = """
import ctypes, os, sys
own = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
namespace = os.open(sys.argv[1], os.O_RDONLY)
if ctypes.CDLL(None).setns(namespace, 0x00020000):  # CLONE_NEWNS
    os._exit(1)
table = os.open("mountinfo", os.O_RDONLY, dir_fd=own)
while part := os.read(table, 1 << 16):
    os.write(1, part)
os._exit(0)
"""
_NAMESPACE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """One process that lives.

    Attributes:
        pid: on the host.
        start_time_ticks: since the host's start; with the pid, its name for all time.
        command: what it calls itself, printable.
        inner_pid: as it sees itself, in its own PID namespace.
        pod: the pod whose cgroup it is in.
        pid_namespace: its own, an inode; 0 where nobody may know.
        has_own_clock: it is in another time namespace than we, so it may see its start at another
            time.
        parent_pid: on the host, 0 if the parent is outside of this PID namespace.
    """

    pid: int
    start_time_ticks: int
    command: str
    inner_pid: int
    pod: PodCgroup | None
    pid_namespace: int = 0
    has_own_clock: bool = False
    parent_pid: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """Its name for all time."""
        return self.pid, self.start_time_ticks


@dataclass(frozen=True, slots=True)
class MountPoint:
    """One mount of a process.

    Attributes:
        device: major and minor number of its file system.
        source: path within that file system of what is mounted.
        target: path in the process's own tree.
        deleted: the source is not there any more.
    """

    device: str
    source: str
    target: str
    deleted: bool


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """Returns when a process was started, None where nothing of it runs any more."""
    found = _stat(pid, proc)
    return found.start_time_ticks if found else None


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """Returns a process, None where nothing of it runs any more.

    One that is ending has let go of the lock by which its ledger knows it, and its driver may take
    seconds to give the GPU back.
    """
    found = _stat(pid, proc)
    if found is None:
        return None
    cgroup, status = _read(found.thread / "cgroup"), _read(proc / str(pid) / "status")
    if cgroup is None or status is None or start_time(pid, proc) != found.start_time_ticks:
        return None  # it ended meanwhile, and its pid may be another's
    inner = _NAMESPACE_PIDS.search(status)
    command = "".join(c if c.isprintable() else "?" for c in found.name)
    return Process(
        pid,
        found.start_time_ticks,
        command,
        int(inner[1].split()[-1]) if inner else pid,
        pod_cgroup(cgroup),
        _namespace(found.thread / "ns/pid"),
        _namespace(found.thread / "ns/time") not in (0, _namespace(PROC / "self/ns/time")),
        found.parent_pid,
    )


def container_members(wanted: Collection[str], proc: Path = PROC) -> dict[str, list[int]]:
    """Returns the pids of the processes in some containers' cgroups, by container id.

    Args:
        wanted: container ids.
    """
    found: dict[str, list[int]] = {}
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdecimal())
    except OSError:
        return found
    for pid in pids:
        place = pod_cgroup(_read(proc / str(pid) / "cgroup") or "")
        if place is not None and place.container_id in wanted:
            found.setdefault(place.container_id, []).append(pid)
    return found


def read_mounts(pid: int | str, proc: Path = PROC) -> Iterator[MountPoint]:
    """Yields the mounts that a process sees, the oldest first; none where it is gone."""
    return _mounts(_read(_thread(pid, proc) / "mountinfo") or "")


def read_namespace_mounts(pid: int, proc: Path = PROC) -> Iterator[MountPoint]:
    """Yields the mounts of a process's namespace, those outside of its ``chroot`` as well.

    A program of its own enters the namespace, so it costs as much as one; none where that fails.
    """
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _IN_NAMESPACE,
                str(_thread(pid, proc) / "ns" / "mnt"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_NAMESPACE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return iter(())
    return _mounts(done.stdout[:MOST_BYTES].decode("utf-8", "replace"))


def _mounts(table: str) -> Iterator[MountPoint]:
    for line in table.split("\n"):
        fields = line.split(" ")
        if len(fields) > 4:
            source = _plain(fields[3])
            deleted = source.endswith(_DELETED)
            yield MountPoint(fields[2], source.removesuffix(_DELETED), _plain(fields[4]), deleted)


def read_mapped_files(pid: int, proc: Path = PROC) -> Iterator[tuple[int, str]]:
    """Yields inode and path of what a process has mapped."""
    for line in (_read(_thread(pid, proc) / "maps") or "").split("\n"):
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            yield int(fields[4]), fields[5]


def end(pid: int, is_still: Callable[[], bool]) -> bool:
    """Ends a process with SIGKILL if it is still the one that is meant; returns whether it did.

    The handle is taken first: whatever happens to the pid afterwards, the signal reaches the
    process that ``is_still`` was asked about, or none.

    Args:
        is_still: looks again whether the process with this pid is the one that is meant.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_still():
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:  # it ended by itself
        return False
    finally:
        os.close(handle)
    return True


def _namespace(link: Path) -> int:
    try:
        return link.stat().st_ino  # of the namespace; the kernel follows no name of the process's
    except OSError:
        return 0


class _Stat(NamedTuple):
    name: str
    parent_pid: int
    start_time_ticks: int
    thread: Path  # of one that runs
    is_ending: bool


def _stat(pid: int, proc: Path) -> _Stat | None:
    """Returns what the kernel tells of a process, None where none of its threads runs.

    The first thread may end before the others: the process goes on, and only the files of those
    tell its mounts, its memory and its namespaces.
    """
    found = _parsed(proc / str(pid))
    if found is None or not found.is_ending:
        return found
    try:
        names = os.listdir(proc / str(pid) / "task")
    except OSError:
        return None
    threads = (_parsed(proc / str(pid) / "task" / name) for name in names)
    running = next((each.thread for each in threads if each and not each.is_ending), None)
    return found._replace(thread=running) if running else None


def _parsed(thread: Path) -> _Stat | None:
    text = _read(thread / "stat")
    if text is None:
        return None
    # The name may hold blanks and brackets; the last bracket closes it.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    is_ending = fields[0] in "ZXx" or bool(int(fields[6]) & _PF_EXITING)
    return _Stat(head.partition("(")[2], int(fields[1]), int(fields[19]), thread, is_ending)


def _thread(pid: int | str, proc: Path) -> Path:
    """Returns the directory of a thread that runs, the process's own where none does."""
    found = _stat(int(pid), proc) if str(pid).isdecimal() else None
    return found.thread if found else proc / str(pid)


def _read(path: Path) -> str | None:
    """Returns the beginning of a file, None where it does not exist (any more)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    parts, room = [], MOST_BYTES
    try:
        while room > 0 and (part := os.read(descriptor, min(room, 1 << 16))):
            parts.append(part)
            room -= len(part)
    except OSError:  # ESRCH: it ended while we read
        return None
    finally:
        os.close(descriptor)
    whole = b"".join(parts)
    if room <= 0:
        whole = whole[: whole.rfind(b"\n") + 1]  # the last line may be cut
    return whole.decode("utf-8", "replace")


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
