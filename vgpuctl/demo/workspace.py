"""One directory for everything a demo makes, and the sweep of what a killed one left behind.

A workspace is ``<tmp>/vgpu-demo-XXXXXXXX`` (mode 0700) and holds a file ``owner`` that its demo
keeps flock'ed for life. It gets that name only once the lock is held, so a workspace whose lock is
free belongs to a dead demo. The file ``processes`` lists what was started, as lines of pid, start
time and name. Every process ends with the demo by itself (PR_SET_PDEATHSIG), so the sweep's kill is
a second safety: it goes through a pidfd after the start time was compared, and never hits a process
that was given the number later.
"""

import fcntl
import os
import shutil
import signal
import stat
import tempfile
import time
from pathlib import Path

import psutil

from libvgpu.errors import VgpuError

_PREFIX = "vgpu-demo-"
_UNFINISHED_PREFIX = ".vgpu-demo-new-"
_UNFINISHED_AGE_S = 60.0
# A demo writes 50 MB.
_NEEDED_BYTES = 60 << 20
# A unix socket's path has 107 bytes; ours lie up to 70 below the workspace.
_LONGEST_BASE = 30
_KILL_WAIT_S = 5.0


def base_directory() -> Path:
    """Returns where workspaces go: the first usual place that has room and can hold them.

    Raises:
        VgpuError: there is none; says what each of them lacks.
    """
    lacks = {}
    # Mkdtemp makes the folder.
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")):  # noqa: S108
        lacks[place] = what_is_missing(Path(place))
        if lacks[place] is None:
            return Path(place)
    raise VgpuError(
        "no place for the demo's files: " + "; ".join(f"{p} {why}" for p, why in lacks.items()),
        hint=f"TMPDIR=DIRECTORY make demo, with a name of at most {_LONGEST_BASE} bytes",
    )


def what_is_missing(place: Path) -> str | None:
    """Returns what a directory lacks to hold a workspace, None if it can."""
    if len(os.fsencode(place)) > _LONGEST_BASE:
        return "has too long a name"
    try:
        status = os.statvfs(place)
        if status.f_flag & os.ST_NOEXEC:
            return "is mounted noexec"
        if status.f_bavail * status.f_frsize < _NEEDED_BYTES:
            return f"has less than {_NEEDED_BYTES >> 20} MiB free"
        with tempfile.TemporaryFile(dir=place):
            return None
    except OSError as error:
        return f"cannot be used: {error.strerror}"


class Workspace:
    """A demo's own directory; use it as a context manager to have it removed."""

    def __init__(self, base: Path | None = None) -> None:
        """Makes the directory and takes its lock.

        Args:
            base: where; `base_directory` by default.
        """
        base = base or base_directory()
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED_PREFIX, dir=base))
        self._lock = os.open(unfinished / "owner", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        name = _PREFIX + unfinished.name.removeprefix(_UNFINISHED_PREFIX)
        self.directory = unfinished.rename(base / name)

    def __enter__(self) -> "Workspace":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def path(self, name: str) -> Path:
        """Returns a directory of that name in the workspace, made if need be."""
        made = self.directory / name
        made.mkdir(exist_ok=True)
        return made

    def record(self, name: str, pid: int) -> None:
        """Notes a process that was started, for the sweep."""
        started = start_time_ticks(pid)
        if started is not None:
            with open(self.directory / "processes", "a") as file:
                file.write(f"{pid} {started} {name}\n")

    def remove(self) -> None:
        """Removes the directory and lets go of the lock."""
        shutil.rmtree(self.directory, ignore_errors=True)
        os.close(self._lock)


def sweep(base: Path | None = None) -> list[Path]:
    """Ends and removes what dead demos of this user left; returns the directories removed."""
    base = base or base_directory()
    removed = []
    for directory in base.glob(f"{_PREFIX}*"):
        if not _is_ours(directory):
            continue
        try:
            lock = os.open(directory / "owner", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            lock = -1  # half removed: its demo died while cleaning up
        try:
            if lock >= 0:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _kill_recorded(directory / "processes")
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(directory)
        except BlockingIOError:
            pass  # its demo is alive
        finally:
            if lock >= 0:
                os.close(lock)
    for directory in base.glob(f"{_UNFINISHED_PREFIX}*"):
        if _is_ours(directory) and time.time() - directory.stat().st_mtime > _UNFINISHED_AGE_S:
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(directory)
    return removed


def start_time_ticks(pid: int) -> int | None:
    """Returns field 22 of /proc/PID/stat, which tells a reused pid; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19])


def _is_ours(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _kill_recorded(processes: Path) -> None:
    try:
        lines = processes.read_text().splitlines()
    except OSError:
        return
    killed = []
    for line in lines:
        pid, started, *_ = [*line.split(" "), "", ""]
        if pid.isdecimal() and started.isdecimal() and kill_exactly(int(pid), int(started)):
            killed.append(int(pid))
    deadline = time.monotonic() + _KILL_WAIT_S
    while any(psutil.pid_exists(pid) for pid in killed) and time.monotonic() < deadline:
        time.sleep(0.01)


def kill_exactly(pid: int, started: int) -> bool:
    """Kills ``pid`` if it still is the process that started at ``started`` ticks after boot."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:  # the handle fixes the process; only now is comparing its start time of use
        if start_time_ticks(pid) != started:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
