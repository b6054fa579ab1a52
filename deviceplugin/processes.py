"""Processes that are not our children, followed by pidfd: an id that is used again is no danger."""

import contextlib
import os
import select
import signal
from pathlib import Path

from libvgpu.errors import MpsError


class Watched:
    """One process, from the moment it was found until `close`."""

    def __init__(self, pid: int) -> None:
        """Takes hold of it.

        Raises:
            MpsError: it is not there.
        """
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except OSError as error:
            raise MpsError(f"process {pid} cannot be watched: {error.strerror}") from None

    def fileno(self) -> int:
        """Returns what becomes readable when it ends."""
        return self._fd

    def ended(self, within_s: float = 0.0) -> bool:
        """Returns whether it ends within a time."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(within_s * 1000))

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, to it and no other; one that has ended gets none."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Lets go of it; collects it if it was our child."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        os.close(self._fd)


def parent_of(pid: int) -> int:
    """Returns the parent of a process, 0 where it is not there."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])  # the name before may hold anything


def has_variable(pid: int, entry: str) -> bool:
    """Returns whether a process was started with ``NAME=value`` in its environment."""
    try:
        return entry.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
