"""What the agent told pods and the Node, kept in a file, for who looks when nobody else remembers.

An API server forgets Events after an hour, and a node may have none; `vgpuctl events` and
`vgpuctl describe` read this file, with the agent or without it. One line of JSON for each. At
`MOST_BYTES` the file becomes the one before (`.1`), which replaces an older one, so that whatever
happens no more than twice that is kept. Equal ones within `REPEAT_S` are one line; the next line of
that kind says how many were left out.

`EventFile.add` may be called by any thread, and never fails: an event that the disk does not take
is lost here, and stands in the log.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from deviceplugin import runtime
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import Notice
from deviceplugin.pages.events import EVENT, KeptEvent

FILE = "events.jsonl"
MOST_BYTES = 256 << 10
REPEAT_S = 60.0
#: Different ones that are remembered to know a repeat.
_REMEMBERED = 256
_MOST_TEXT = 2000


class EventFile:
    """The file as the agent writes it."""

    def __init__(
        self,
        state_dir: Path,
        epoch_s: Callable[[], float] = runtime.epoch,
        clock_s: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Writes nothing yet.

        Args:
            epoch_s: seconds since the epoch.
            clock_s: seconds from any start.
        """
        self._path = state_dir / FILE
        self._epoch_s, self._clock_s = epoch_s, clock_s
        self._lock = runtime.lock()
        self._last: dict[Notice, tuple[float, int]] = {}  # when it was written, and left out since

    def add(self, notice: Notice) -> None:
        """Keeps one notice."""
        now_s = self._clock_s()
        with self._lock:
            written_s, left_out = self._last.get(notice, (float("-inf"), 0))
            if now_s - written_s < REPEAT_S:
                self._last[notice] = written_s, left_out + 1
                return
            self._last.pop(notice, None)  # the oldest come first
            self._last[notice] = now_s, 0
            if len(self._last) > _REMEMBERED:
                del self._last[next(iter(self._last))]
            subject = str(notice.subject) if isinstance(notice.subject, Owner) else ""
            kept = KeptEvent(
                round(self._epoch_s(), 3),
                notice.reason.value,
                notice.text[:_MOST_TEXT],
                notice.reason.is_warning,
                subject,
                left_out,
            )
            with contextlib.suppress(OSError):
                self._append(msgspec.json.encode(kept) + b"\n")

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size + len(line) > MOST_BYTES:
                os.replace(self._path, f"{self._path}.1")
                os.close(descriptor)
                descriptor = os.open(self._path, flags, 0o600)
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def events_page(state_dir: Path) -> bytes:
    """Returns what is kept as JSON, a list with the oldest first.

    Raises:
        OSError: there is a file that may not be read.
    """
    return msgspec.json.encode(kept_events(state_dir))


def kept_events(state_dir: Path) -> list[KeptEvent]:
    """Returns what is kept, the oldest first; a line that is damaged is left out.

    Raises:
        OSError: there is a file that may not be read.
    """
    found: list[KeptEvent] = []
    for name in (f"{FILE}.1", FILE):
        try:
            with open(state_dir / name, "rb") as file:
                lines = file.read(2 * MOST_BYTES).splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
                found.append(EVENT.decode(line))
    return found
