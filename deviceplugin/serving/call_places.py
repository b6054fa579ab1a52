"""The places of a `CallServer`: which connections have one, and which loses it to another.

A connection whose call is being answered keeps its place. All others can lose theirs: those that
are idle, that never send the whole of a call, that never finish a handshake or never read their
answer. If there are too many, the source address with the most connections loses one. So a flood
from one address takes places from itself. The same holds for the bytes that calls keep in memory.

*Known* is a connection that has shown a certificate, or had an answer. Half of the places are kept
for those: a crowd that finishes nothing takes places from itself alone, from however many
addresses.
"""

import threading
import time
from collections.abc import Callable

from .calls import Limits
from .crowds import Crowds, Phase, Place

_SAY_EVERY_S = 60.0


class ClientGone(ConnectionError):  # noqa: N818 - it is the client that is gone
    """The client ended the connection before its call was whole, or lost its place."""


class Places:
    """All places; safe to use from several threads."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda source: None,
    ) -> None:
        """All places are free.

        Args:
            clock: never goes back.
            say: told of a source that loses a connection, once a minute at most.
        """
        self._limits, self._clock, self._say = limits, clock, say
        self._crowds = Crowds(limits.connections // 2, clock)
        self._bytes = 0
        self._said_s = float("-inf")
        self._lock = threading.Lock()

    def enter(self, source: str, end: Callable[[], None]) -> Place | None:
        """Returns a place, for which another connection may have to go; None if none has to."""
        lost: Place | None = None
        with self._lock:
            has_most = self._crowds.count_of(source) >= self._limits.source_connections
            if has_most or len(self._crowds) >= self._limits.connections:
                lost = self._crowds.first_to_go(source if has_most else None)
                if lost is None:
                    return None
                self._end(lost)
            place = Place(end, source, self._clock())
            self._crowds.add(place)
        self._told(lost)
        return place

    def leave(self, place: Place) -> None:
        """Frees a place; one that was lost is free already."""
        with self._lock:
            self._forget(place)

    def note(self, place: Place, phase: Phase) -> None:
        """Notes what a connection does from now on.

        Raises:
            ClientGone: it has lost its place.
        """
        with self._lock:
            self._check(place)
            self._crowds.remove(place)
            place.phase, place.since_s = phase, self._clock()
            place.is_known = place.is_known or phase is Phase.IDLE
            self._crowds.add(place)

    def know(self, place: Place) -> None:
        """Notes that a client has shown a certificate."""
        with self._lock:
            if place in self._crowds:
                self._crowds.remove(place)
                place.is_known = True
                self._crowds.add(place)

    def take(self, place: Place, count: int) -> bool:
        """Takes bytes for a call, for which another connection may have to go; returns False where
        there are too many and none has to.

        Raises:
            ClientGone: the connection has lost its place.
        """
        lost: Place | None = None
        with self._lock:
            self._check(place)
            while self._bytes + count > self._limits.bodies_bytes:
                lost = self._crowds.largest(place)
                if lost is None:
                    return False
                self._end(lost)
            self._hold(place, place.bytes + count)
        self._told(lost)
        return True

    def hold(self, place: Place, count: int) -> None:
        """Sets the bytes of a connection, as the answer takes the place of the call.

        An answer is never refused for its size, but it counts when others ask for room.
        """
        with self._lock:
            if place in self._crowds:
                self._hold(place, count)

    @property
    def has_calls(self) -> bool:
        """Whether any connection has a call that is not answered yet."""
        quiet = (Phase.NEW, Phase.IDLE)
        with self._lock:
            return any(each.phase not in quiet for each in self._crowds)

    def _end(self, place: Place) -> None:
        self._forget(place)
        place.end()

    def _forget(self, place: Place) -> None:
        self._hold(place, 0)
        if place in self._crowds:
            self._crowds.remove(place)

    def _hold(self, place: Place, count: int) -> None:
        self._bytes += count - place.bytes
        place.bytes = count

    def _check(self, place: Place) -> None:
        if place not in self._crowds:
            raise ClientGone("the connection has lost its place")

    def _told(self, lost: Place | None) -> None:
        if lost is None:
            return
        with self._lock:
            now_s = self._clock()
            if now_s - self._said_s < _SAY_EVERY_S:
                return
            self._said_s = now_s
        self._say(lost.source)


def source_of(address: object) -> str:
    """Returns the address by which a client counts; IPv4 by way of IPv6 is IPv4."""
    host = str(address[0]) if isinstance(address, tuple) and address else ""
    host = host.partition("%")[0]
    return host.removeprefix("::ffff:") if "." in host else host
