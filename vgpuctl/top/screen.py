"""Shows frames on a terminal and reads keys, by curses, until the user has seen enough.

curses knows the terminal (also in tmux and over ssh), sends what has changed and nothing else, and
puts the screen back however the loop ends. Sizes and signals come to it as keys.
"""

import curses
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType

from libvgpu.counting import counted
from libvgpu.errors import VgpuError

from ..fitting import beginning
from ..fitting import width as text_width
from .frame import (
    Line,
    Look,
    SortKey,
    Span,
    TopGpu,
    Wanted,
    fitted,
    gpu_lines,
    ordered,
    plain,
    table,
)
from .legend import LEGEND
from .rates import TopRow

_ESCAPE, _BACKSPACES = 27, frozenset((8, 127, curses.KEY_BACKSPACE))
_HELP = "q quit   ? help   n g m s w r sort (again: reverse)   / filter   space hold"
_LEAST_GPU_LINES = 4
_MOST_TEXT = 60


class TopScreen:
    """One session.

    Attributes:
        wanted: what the user chose to see so far.
    """

    def __init__(
        self,
        look: Callable[[], list[TopRow]],
        gpus: Mapping[str, TopGpu],
        title: str,
        interval_s: float,
        wanted: Wanted,
        missing: Callable[[], str] = str,
    ) -> None:
        """Shows nothing yet.

        Args:
            look: returns what there is now.
            gpus: by UUID; `look` may change it.
            title: of the screen.
            missing: says what the last look lacks; empty where it lacks nothing.
        """
        self.wanted = wanted
        self._look, self._gpus, self._title, self._interval_s = look, gpus, title, interval_s
        self._rows: Sequence[TopRow] = ()
        self._typed: str | None = None  # a filter that is being typed
        self._is_held = self._shows_legend = False
        self._problem = ""
        self._missing = missing
        self._page = 1

    def run(self) -> None:
        """Returns when the user quits.

        Raises:
            VgpuError: the terminal cannot do it.
        """
        os.environ.setdefault("ESCDELAY", "25")  # else Escape alone is known a second later
        for name in ("LINES", "COLUMNS"):  # curses would take them for the size, for ever
            os.environ.pop(name, None)
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGHUP, _end)
        try:
            curses.wrapper(self._run)
        except curses.error as error:
            raise VgpuError(
                f"the terminal {os.environ.get('TERM', '')!r} cannot show a screen: {error}",
                "set TERM to what it is, or use --once",
            ) from None

    def _run(self, window: "curses.window") -> None:
        looks = _looks()
        curses.curs_set(0)
        due_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            if now_s >= due_s:
                if not self._is_held:
                    self._read()
                due_s = now_s + self._interval_s
            self._draw(window, looks)
            window.timeout(max(1, round((due_s - time.monotonic()) * 1000)))
            key = window.getch()
            while key != -1:  # all that were typed meanwhile, then one frame
                if not self.typed(key):
                    return
                window.timeout(0)
                key = window.getch()

    def _read(self) -> None:
        try:
            self._rows, self._problem = self._look(), ""
        except (VgpuError, OSError) as error:
            self._problem = str(error)

    def typed(self, key: int) -> bool:
        """Takes one key; returns whether to go on."""
        if self._shows_legend:
            self._shows_legend = key == curses.KEY_RESIZE
        elif self._typed is not None:
            self._type_filter(key)
        elif key == ord("q"):
            return False
        elif key == ord("?"):
            self._shows_legend = True
        elif key == ord("/"):
            self._typed = self.wanted.text
        elif key == _ESCAPE:
            self.wanted = replace(self.wanted, text="", first=0)
        elif key == ord(" "):
            self._is_held = not self._is_held
        elif key in _SORTS:
            sort = _SORTS[key]
            again = sort is self.wanted.sort and not self.wanted.is_reversed
            self.wanted = replace(self.wanted, sort=sort, is_reversed=again, first=0)
        else:
            self._scroll(key)
        return True

    def _type_filter(self, key: int) -> None:
        assert self._typed is not None
        if key in (curses.KEY_ENTER, 10, 13):
            self._typed = None
            return
        if key == _ESCAPE:
            self._typed = None
            self.wanted = replace(self.wanted, text="", first=0)
            return
        if key in _BACKSPACES:
            self._typed = self._typed[:-1]
        elif 32 <= key < 127 and len(self._typed) < _MOST_TEXT:
            self._typed += chr(key)
        self.wanted = replace(self.wanted, text=self._typed, first=0)

    def _scroll(self, key: int) -> None:
        steps = {
            curses.KEY_UP: -1,
            curses.KEY_DOWN: 1,
            curses.KEY_PPAGE: -self._page,
            curses.KEY_NPAGE: self._page,
            curses.KEY_HOME: -len(self._rows),
            curses.KEY_END: len(self._rows),
        }
        first = self.wanted.first + steps.get(key, 0)
        self.wanted = replace(self.wanted, first=max(0, first))

    def _draw(self, window: "curses.window", looks: Mapping[Look, int]) -> None:
        height, width = window.getmaxyx()
        window.erase()
        for number, line in enumerate(self._lines(height, width)[:height]):
            column = 0
            for span in line:
                text = beginning(span.text, width - column - 1)
                window.addstr(number, column, text, looks[span.look])
                column += text_width(text)
        window.refresh()

    def _lines(self, height: int, width: int) -> list[Line]:
        if self._shows_legend:
            return [[Span(text)] for text in LEGEND]
        rows = ordered(self._rows, self.wanted, self._gpus)
        gpus = [fitted(line, width - 1) for line in gpu_lines(self._rows, self._gpus)]
        most = max(_LEAST_GPU_LINES, height // 3)
        if len(gpus) > most:
            gpus = [*gpus[: most - 1], faint(f"… and {len(gpus) - most + 1} GPUs more")]
        above = [faint(f"{self._title}  {time.strftime('%H:%M:%S')}{self._said(rows)}"), *gpus, []]
        left = height - len(above) - 1
        self._page = max(1, left - 1)
        last = max(0, len(rows) - self._page)
        if self.wanted.first > last:
            self.wanted = replace(self.wanted, first=last)
        lines = [*above, *table(rows, self._gpus, self.wanted, width - 1, left)]
        lines += [[] for _ in range(height - 1 - len(lines))]
        return [*lines[: height - 1], faint(self._foot())]

    def _said(self, rows: Sequence[TopRow]) -> str:
        said = f"  {counted(len(rows), 'slice')}"
        if self.wanted.text:
            said += f" of {len(self._rows)} with {self.wanted.text!r}"
        return said + "  held, space goes on" * self._is_held

    def _foot(self) -> str:
        if self._typed is not None:
            return f"filter: {self._typed}▏ (Enter keeps it, Escape ends it)"
        return self._problem or self._missing() or _HELP


def faint(text: str) -> Line:
    """Returns a line of one span that stands back."""
    return [Span(text, Look.FAINT)]


def once(rows: Sequence[TopRow], gpus: Mapping[str, TopGpu], wanted: Wanted, width: int) -> str:
    """Returns one frame as text."""
    found = ordered(rows, wanted, gpus)
    above = [fitted(line, width) for line in gpu_lines(rows, gpus)]
    lines = [*above, [], *table(found, gpus, wanted, width)]
    return "\n".join(map(plain, lines))


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the loop by an exception, so that the screen is put back first."""
    raise SystemExit(128 + number)


_SORTS = {ord(key.value): key for key in SortKey}


def _looks() -> dict[Look, int]:
    """Returns curses' attributes of each look; colours only where the user wants any."""
    looks = {
        Look.PLAIN: curses.A_NORMAL,
        Look.HEADING: curses.A_BOLD,
        Look.CHOSEN: curses.A_REVERSE | curses.A_BOLD,
        Look.HIGH: curses.A_BOLD,
        Look.FAINT: curses.A_DIM,
    }
    if curses.has_colors() and not os.environ.get("NO_COLOR"):
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        looks[Look.HIGH] |= curses.color_pair(1)
    return looks
