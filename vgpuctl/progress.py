"""Says on stderr what is being done once that takes longer than anybody likes to wait in silence.

A thread of its own speaks, so that what hangs is named while it hangs; `begin` is called by the
thread that works, and replaces one attribute. Only the outermost of several speaks; they are
entered by the main thread alone.
"""

import threading
import time
from types import TracebackType

import click

SILENT_S = 2.0


class Progress:
    """While it is entered, each two seconds a line with what is done now."""

    _is_one_entered = False

    def __init__(self, silent_s: float = SILENT_S, program: str = "vgpuctl") -> None:
        """Says nothing yet.

        Args:
            program: who speaks.
        """
        self._silent_s, self._program = silent_s, program
        self._what = ""
        self._speaks = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="progress", daemon=True)
        self._since_s = time.monotonic()

    def begin(self, what: str) -> None:
        """Notes what is done from now on, for example ``reading state.json``."""
        self._what = what

    def _speak(self) -> None:
        while not self._ended.wait(self._silent_s):
            passed_s = time.monotonic() - self._since_s
            click.echo(f"{self._program}: {self._what} ({passed_s:.0f} s so far)", err=True)

    def __enter__(self) -> "Progress":
        """Begins."""
        if not Progress._is_one_entered:
            Progress._is_one_entered = self._speaks = True
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends."""
        if self._speaks:
            self._ended.set()
            self._thread.join()
            Progress._is_one_entered = self._speaks = False
