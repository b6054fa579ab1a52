"""Watches: the changes that one client follows, as lines of JSON.

An object that comes to match a selector is ADDED to its watch, one that ceases to is DELETED, as in
a real watch. The store's lock is held while a change is put into a watch's queue, and not while it
is written.
"""

import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from .kinds import Kind
from .object_store import Change, ChangeKind, ObjectStore, Stored
from .refusals import ApiFailure, expired

_LONGEST_S = 1800.0


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for: of which kind, where, and which of them."""

    kind: Kind
    namespace: str
    holds: Callable[[Stored], bool]

    def matches(self, stored: Stored | None) -> bool:
        """Returns whether an object is asked for."""
        if stored is None or (self.namespace and stored.namespace != self.namespace):
            return False
        return self.holds(stored)


def with_kind(kind: Kind, raw: bytes) -> bytes:
    """Returns the JSON of an object that stands alone, from that of one in a list."""
    return f'{{"kind":"{kind.name}","apiVersion":"{kind.api_version}",'.encode() + raw[1:]


class Watch:
    """One open watch.

    Attributes:
        is_cut: it ends without a word.
    """

    def __init__(self, store: ObjectStore, query: Query, since: int | None) -> None:
        """Begins to follow; where the changes have expired, that is all it tells.

        Args:
            since: the version after which; None: all objects that are there come first.
        """
        self._store, self._query = store, query
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.is_cut = False
        with store.lock:
            if since is None:
                since, objects = store.list(query.kind)
                for each in filter(query.matches, objects):
                    self._lines.put(self._line(ChangeKind.ADDED, each.raw))
            try:
                store.subscribe(query.kind, since, self._put)
            except ApiFailure as failure:
                self._lines.put(_failure_line(failure))
                self._lines.put(None)

    def close(self) -> None:
        """Follows no more."""
        self._store.unsubscribe(self._query.kind, self._put)

    def cut(self) -> None:
        """Ends it as a network does that fails."""
        self.is_cut = True
        self.say(None)

    def say(self, line: bytes | None) -> None:
        """Sends a line, whatever it is; None ends the watch as its time does."""
        self._lines.put(line)

    def expire(self) -> None:
        """Ends it with the word that what it followed has expired."""
        self.close()
        self._lines.put(_failure_line(expired("too old resource version")))
        self._lines.put(None)

    def chunks(self, timeout_s: float, bookmark_every_s: float | None) -> Iterator[bytes]:
        """Yields what there is to send, until the time is over or the watch is ended."""
        ends_at = time.monotonic() + min(timeout_s or _LONGEST_S, _LONGEST_S)
        bookmark_at = time.monotonic() + (bookmark_every_s or _LONGEST_S)
        while (now := time.monotonic()) < ends_at:
            if now >= bookmark_at:
                bookmark_at = now + (bookmark_every_s or _LONGEST_S)
                if (line := self._bookmark()) is not None:
                    yield line
            try:
                line = self._lines.get(timeout=max(0.0, min(ends_at, bookmark_at) - now))
            except queue.Empty:
                continue
            lines = []
            while line is not None:
                lines.append(line)
                try:
                    line = self._lines.get_nowait()
                except queue.Empty:
                    break
            if lines and not self.is_cut:
                yield b"".join(lines)
            if line is None:
                return

    def _bookmark(self) -> bytes | None:
        """Returns how far the watch is; None while something is in its queue."""
        with self._store.lock:
            if not self._lines.empty():
                return None
            version = self._store.version
        content = {"metadata": {"resourceVersion": str(version), "creationTimestamp": None}}
        return self._line("BOOKMARK", msgspec.json.encode(content))

    def _put(self, change: Change) -> None:
        before = self._query.matches(change.before)
        now = change.kind != ChangeKind.DELETED and self._query.matches(change.now)
        if now:
            kind = ChangeKind.MODIFIED if before else ChangeKind.ADDED
            self._lines.put(self._line(kind, change.now.raw))
        elif before:
            assert change.before is not None
            raw = change.now.raw
            if change.kind != ChangeKind.DELETED:  # as it last matched, at the version of now
                content = change.before.copy()
                content["metadata"]["resourceVersion"] = str(change.now.version)
                raw = msgspec.json.encode(content)
            self._lines.put(self._line(ChangeKind.DELETED, raw))

    def _line(self, kind: str, raw: bytes) -> bytes:
        body = with_kind(self._query.kind, raw)
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


def _failure_line(failure: ApiFailure) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": failure.body()}) + b"\n"
