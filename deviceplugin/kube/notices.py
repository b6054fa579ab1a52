"""Picks the notices from the agent's log, and bounds how many Events they become.

Whoever logs something that a pod or the Node must be told attaches a `Notice` to the log record
(`log.event`); `NoticeTap` takes it from there, so no part of the agent waits for an API server.
Equal notices within `WINDOW_S` are one Event that is counted up: it is sent when it first happens,
and once more when its window ends, if there were others. A token bucket bounds what different ones
may cost the API server. `Aggregator` is pure and used by one thread, the sender's.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deviceplugin import runtime
from deviceplugin.log import LOGGER
from deviceplugin.model.notices import Notice

WINDOW_S = 60.0
#: So many different ones at once, then so many a second.
BURST, PER_SECOND = 25, 0.5


@dataclass(slots=True)
class Record:
    """One Event as the API server is to know it.

    Attributes:
        name: of the Event object.
        uid: of the pod, once it was looked up; empty where it is not known.
        told: how often the API server was told of it.
    """

    notice: Notice
    name: str
    first_at: float
    last_at: float
    count: int = 1
    told: int = 0
    uid: str | None = None


class Aggregator:
    """Counts equal notices within a window; used by one thread."""

    def __init__(self) -> None:
        """Knows nothing yet."""
        self._open: dict[Notice, Record] = {}
        self._tokens, self._filled_at = float(BURST), 0.0
        self.dropped = 0

    def add(self, notice: Notice, now: float) -> Record | None:
        """Returns the Event to tell of now; None where it is counted up, or dropped as too many."""
        record = self._open.get(notice)
        if record is not None:
            record.count, record.last_at = record.count + 1, now
            return None
        self._tokens = min(BURST, self._tokens + max(0.0, now - self._filled_at) * PER_SECOND)
        self._filled_at = now
        if self._tokens < 1:
            self.dropped += 1
            return None
        self._tokens -= 1
        record = Record(notice, f"vgpu.{runtime.random_hex(8)}", now, now)
        self._open[notice] = record
        return record

    def due(self, now: float) -> list[Record]:
        """Closes the windows that are over; returns those Events that were counted up in them."""
        over = [r for r in self._open.values() if now >= r.first_at + WINDOW_S]
        for record in over:
            del self._open[record.notice]
        return [record for record in over if record.count > 1]

    def next_due(self) -> float | None:
        """Returns when the first window ends, None where none is open."""
        return min((r.first_at + WINDOW_S for r in self._open.values()), default=None)


class NoticeTap(logging.Handler):
    """Hands the notices of the agent's log to ``put``, which must not block."""

    def __init__(self, put: Callable[[Notice], None]) -> None:
        super().__init__(logging.INFO)
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        """Takes the notice of one record, if it has one."""
        notice = getattr(record, "notice", None)
        if isinstance(notice, Notice):
            self._put(notice)


@contextmanager
def tapped(put: Callable[[Notice], None]) -> Iterator[None]:
    """Hands the notices of the agent's log to ``put``, which must not block, within this."""
    tap = NoticeTap(put)
    LOGGER.addHandler(tap)
    try:
        yield
    finally:
        LOGGER.removeHandler(tap)
