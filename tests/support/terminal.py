"""A pseudo-terminal for programs that draw a screen, and an emulator that knows what it shows."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence

import pyte

from . import ROOT
from .waiting import PATIENCE_S

#: Leaving the alternate screen, as xterm's terminfo has it.
RESTORED = b"\x1b[?1049l"


class Terminal:
    """A terminal with a program in it, and what it shows."""

    def __init__(
        self, argv: Sequence[str], rows: int = 24, columns: int = 140, **variables: str
    ) -> None:
        """Starts the program.

        Args:
            variables: of its environment, besides those of this process.
        """
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.bytes = b""
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self._size(rows, columns)
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            start_new_session=True,
            # A shell may have exported what its size was; that of the terminal counts.
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "20"} | variables,
        )
        self.slave = slave

    def _size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows: int, columns: int) -> None:
        self._size(rows, columns)
        self.screen.resize(rows, columns)
        os.kill(self.process.pid, signal.SIGWINCH)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def _has_more(self, within_ms: int) -> bool:
        waiting = select.poll()  # for any descriptor, where select knows the first 1024
        waiting.register(self.master, select.POLLIN)
        return bool(waiting.poll(within_ms))

    def read(self) -> str:
        if self._has_more(50):
            got = os.read(self.master, 1 << 16)
            self.bytes += got
            self.stream.feed(got)
        return "\n".join(self.screen.display)

    def wait(self, *wanted: str, without: str = "\0") -> list[str]:
        """Waits until all texts are on the screen and one is not; returns its lines."""
        give_up_s = time.monotonic() + PATIENCE_S
        shown = self.read()
        while not all(text in shown for text in wanted) or without in shown:
            assert time.monotonic() < give_up_s, f"not {wanted} on\n{shown}"
            shown = self.read()
        return shown.splitlines()

    def wait_end(self) -> int:
        give_up_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < give_up_s, "it does not end"
            self.read()
        while self._has_more(100):
            self.read()
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)
