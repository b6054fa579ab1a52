"""A program that a warm server (`support.warm`) has forked, used as one of `subprocess.Popen`."""

import contextlib
import os
import select
import signal
import subprocess


def readable(*files: int, within_s: float | None = None) -> set[int]:
    """Returns which of these files can be read; waits for one, at most so long.

    By poll, which virtual time takes over.
    """
    looked = select.poll()
    for file in files:
        looked.register(file, select.POLLIN)
    return {file for file, _ in looked.poll(None if within_s is None else within_s * 1000)}


class Program:
    """It runs until it ends, is killed, or the process ends that asked for it.

    Attributes:
        args: what it was started with.
        pid: its process number, which is its own until `poll` or `wait` has told that it ended.
    """

    def __init__(self, args: list[str], pid: int, ends: int) -> None:
        """Begins with its process.

        Args:
            ends: a pipe that tells its status once it has ended; closed then.
        """
        self.args, self.pid = args, pid
        self._ends = ends
        self._status: int | None = None

    def poll(self) -> int | None:
        """Returns its status, as Popen has it; None while it runs."""
        if self._status is None and readable(self._ends, within_s=0):
            self._hear()
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Returns its status once it has ended.

        Raises:
            TimeoutExpired: it has not.
        """
        if self._status is None and not readable(self._ends, within_s=timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        if self._status is None:
            self._hear()
        assert self._status is not None
        return self._status

    def terminate(self) -> None:
        """Has it end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def _hear(self) -> None:
        """Its server has told, or has ended and it with that."""
        self._status = int(os.read(self._ends, 100) or -signal.SIGKILL)
        os.close(self._ends)
