"""What is to go wrong in the simulated API server; set by tests and measurements, at any moment."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

#: Instead of a status: the connection is cut, and nobody knows what became of the call.
CUT = 0


@dataclass(slots=True)
class Planted:
    """Answers that are to fail.

    Attributes:
        status: of HTTP, or `CUT`.
        what: matches method and path; empty: any.
        left: how many more; infinite: until the faults are cleared.
        is_done: the call is carried out first, and only its answer is lost.
    """

    status: int
    what: re.Pattern[str]
    left: float
    is_done: bool


@dataclass(slots=True)
class Faults:
    """All of them.

    Attributes:
        before: called with ``METHOD /path`` before each answer; it may take its time.
        is_away: each connection is cut as soon as somebody asks.
    """

    before: Callable[[str], object] = lambda _: None
    is_away: bool = False
    _planted: list[Planted] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def plant(self, status: int, what: str = "", count: float = 1, is_done: bool = False) -> None:
        """Lets the next calls fail.

        Args:
            what: a pattern searched in ``METHOD /path``.
            count: how many of them; infinite: all until `clear`.
        """
        with self._lock:
            self._planted.append(Planted(status, re.compile(what), count, is_done))

    def left(self, what: str) -> float:
        """Returns how many calls are still to fail that were planted with a pattern."""
        with self._lock:
            return sum(each.left for each in self._planted if each.what.pattern == what)

    def slow(self, seconds: float) -> None:
        """Has each answer take so long."""
        self.before = lambda _: time.sleep(seconds)

    def clear(self) -> None:
        """Lets nothing fail any more."""
        with self._lock:
            self._planted.clear()
        self.before, self.is_away = lambda _: None, False

    def of(self, method: str, path: str) -> Planted | None:
        """Takes the fault that this call is to have."""
        if not self._planted:
            return None
        with self._lock:
            for each in self._planted:
                if each.what.search(f"{method} {path}"):
                    each.left -= 1
                    if not each.left:
                        self._planted.remove(each)
                    return each
        return None
