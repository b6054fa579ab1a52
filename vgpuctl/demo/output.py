"""What the demo prints: checks as they are made, one table, and the verdict.

Results go to stdout, what is being done to stderr. A check names what was expected and what was
seen; one that fails makes the demo fail but the demo goes on where it can.
"""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from libvgpu.sizes import format_size
from vgpuctl.render import Column, Row, print_listing, printable

_PIPE_WIDTH = 1000  # a pipe has no width, and rich would wrap


class Report:
    """Prints results and keeps whether all of them held."""

    def __init__(self) -> None:
        self._console = Console(
            highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH
        )
        self.checks = 0
        self.failures = 0

    def say(self, text: str) -> None:
        """Tells what is being done."""
        print(f"demo: {text}", file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """Prints text of a result as it is."""
        self._console.print(Text(printable_lines(text)))

    def head(self, text: str) -> None:
        """Begins a part of the results."""
        self._console.print()
        self._console.print(Text(text, style="bold"))

    def table(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """Prints the table."""
        sys.stdout.flush()
        print_listing(rows, columns, "table", "nothing to show")

    def check(self, what: str, expected: object, seen: object, holds: bool | None = None) -> bool:
        """Prints and counts one check.

        Args:
            what: in a few words.
            expected: what it must be.
            seen: what it is.
            holds: whether that is good; by default, whether both are equal.
        """
        good = expected == seen if holds is None else holds
        self.checks += 1
        self.failures += not good
        verdict = (
            Text("  ok      ", style="green") if good else Text("  FAILED  ", style="bold red")
        )
        detail = f"{what}: {seen}" if good else f"{what}: expected {expected}, seen {seen}"
        self._console.print(verdict + Text(printable(detail)))
        return good

    def failed(self, what: str) -> None:
        """Prints and counts a step that could not be made at all."""
        self.checks += 1
        self.failures += 1
        self._console.print(Text("  FAILED  ", style="bold red") + Text(printable(what)))

    def verdict(self, seconds: float) -> bool:
        """Prints the last line; returns whether all checks held."""
        good = self.failures == 0 and self.checks > 0
        counted = f"{self.checks - self.failures} of {self.checks} checks hold"
        self._console.print()
        self._console.print(
            Text("demo passed" if good else "demo FAILED", style="bold")
            + Text(f": {counted}, {seconds:.1f} s; all figures are of simulated GPUs")
        )
        return good


def printable_lines(text: str) -> str:
    """Returns ``text`` with what a terminal could act on replaced, line ends kept."""
    return "\n".join(printable(line) for line in text.rstrip("\n").split("\n"))


def size(count: int) -> str:
    """Returns bytes exactly where that is short, else rounded and exact."""
    shown = format_size(count)
    return shown if count % (1 << 20) == 0 else f"{shown} ({count} bytes)"
