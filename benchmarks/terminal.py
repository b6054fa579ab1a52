"""A program on a terminal of its own that somebody looks at: what processor it takes."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from libvgpu.errors import VgpuError

from .process import cpu_seconds

_END_S = 10.0
_PIECE_BYTES = 1 << 16


class Watched:
    """A program whose screen is read; made by `open_terminal`."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self._process, self._master = process, master

    def look(self, seconds: float) -> bytes:
        """Reads for so long and returns what was drawn.

        Raises:
            VgpuError: the program has ended.
        """
        drawn = b""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if select.select([self._master], [], [], left_s)[0]:
                try:
                    drawn += os.read(self._master, _PIECE_BYTES)
                except OSError:  # its end of the terminal is closed
                    raise VgpuError(
                        f"the program on the terminal ended with status {self._process.wait()}: "
                        f"{drawn[-200:].decode(errors='replace')}"
                    ) from None
        return drawn

    def processor_percent(self, seconds: float) -> tuple[float, bytes]:
        """Returns what share of a core the program takes for so long, in percent, and what it drew.

        Raises:
            VgpuError: it has ended.
        """
        used_s, began_s = cpu_seconds(self._process.pid), time.monotonic()
        drawn = self.look(seconds)
        took_s = time.monotonic() - began_s
        return 100 * (cpu_seconds(self._process.pid) - used_s) / took_s, drawn


@contextmanager
def open_terminal(
    command: Sequence[str], environment: Mapping[str, str], rows: int, columns: int
) -> Iterator[Watched]:
    """Starts a program on a terminal of this size; both end with the block."""
    process, master = _start(command, environment, rows, columns)
    try:
        yield Watched(process, master)
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(master)


def run_on_terminal(
    command: Sequence[str], environment: Mapping[str, str], rows: int, columns: int
) -> tuple[int, str, float]:
    """Runs a program on a terminal to its end.

    Returns:
        its exit status, what it drew, and the seconds from its start to its end.
    """
    began_s = time.perf_counter()
    process, master = _start(command, environment, rows, columns)
    drawn = b""
    try:
        while piece := os.read(master, _PIECE_BYTES):
            drawn += piece
    except OSError:  # its end of the terminal is closed
        pass
    finally:
        os.close(master)
    status = process.wait()
    return status, drawn.decode(errors="replace"), time.perf_counter() - began_s


def _start(
    command: Sequence[str], environment: Mapping[str, str], rows: int, columns: int
) -> tuple["subprocess.Popen[bytes]", int]:
    """Starts a program on a new terminal; returns it and our end of that."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    return process, master
