"""The places of a `CallServer`: which connections have one, and which loses it to another.

A connection whose call is being answered keeps its place. All others can lose theirs: those that
are idle, that never send the whole of a call, that never finish a handshake or never read their
answer. If there are too many, the source address with the most connections loses one. So a flood
from one address takes places from itself. The same holds for the bytes that calls keep in memory.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from .calls import Limits

#: An honest client sends a call in milliseconds. One that takes longer loses its place first.
_PROMPT_S = 1.0
_SAY_EVERY_S = 60.0


class ClientGone(ConnectionError):  # noqa: N818 - it is the client that is gone
    """The client ended the connection before its call was whole, or lost its place."""


class Phase(Enum):
    """What a connection is doing."""

    NEW = auto()  # it has sent no byte of a call, and may be in its handshake
    IDLE = auto()  # between two calls
    UNREAD = auto()  # a part of a call has come
    ANSWERING = auto()
    UNSENT = auto()  # a part of the answer is still to be sent


@dataclass(eq=False, slots=True)
class Place:
    """A connection's place.

    Attributes:
        end: ends the connection, so that its thread sees it; does not wait.
        source: address of the client.
        since_s: when the phase began.
        bytes: what is kept in memory for it.
    """

    end: Callable[[], None]
    source: str
    since_s: float
    phase: Phase = Phase.NEW
    bytes: int = 0


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
        self._places: set[Place] = set()
        self._bytes = 0
        self._said_s = float("-inf")
        self._lock = threading.Lock()

    def enter(self, source: str, end: Callable[[], None]) -> Place | None:
        """Returns a place, for which another connection may have to go; None if none has to."""
        lost: Place | None = None
        with self._lock:
            its = [each for each in self._places if each.source == source]
            among: Iterable[Place] = ()
            if len(its) >= self._limits.source_connections:
                among = its
            elif len(self._places) >= self._limits.connections:
                among = self._places
            if among:
                lost = self._loser(among, lambda each: 1)
                if lost is None:
                    return None
                self._end(lost)
            place = Place(end, source, self._clock())
            self._places.add(place)
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
            place.phase, place.since_s = phase, self._clock()

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
                late = [
                    each
                    for each in self._places
                    if each.bytes and each is not place and self._is_late(each)
                ]
                lost = self._loser(late, lambda each: each.bytes)
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
            if place in self._places:
                self._hold(place, count)

    @property
    def has_calls(self) -> bool:
        """Whether any connection has a call that is not answered yet."""
        quiet = (Phase.NEW, Phase.IDLE)
        with self._lock:
            return any(each.phase not in quiet for each in self._places)

    def _loser(self, among: Iterable[Place], weight: Callable[[Place], int]) -> Place | None:
        """Returns whose place is given away: one of the source with the most."""
        weights: Counter[str] = Counter()
        for each in self._places:
            weights[each.source] += weight(each)
        return min(
            (each for each in among if each.phase is not Phase.ANSWERING),
            key=lambda each: (-weights[each.source], self._rank(each), each.since_s),
            default=None,
        )

    def _rank(self, place: Place) -> int:
        """Returns 0 for calls that do not get on, 1 for idle connections, 2 for young calls."""
        if place.phase is Phase.IDLE:
            return 1
        return 0 if self._is_late(place) else 2

    def _is_late(self, place: Place) -> bool:
        return (
            place.phase in (Phase.NEW, Phase.UNREAD, Phase.UNSENT)
            and self._clock() - place.since_s > _PROMPT_S
        )

    def _end(self, place: Place) -> None:
        self._forget(place)
        place.end()

    def _forget(self, place: Place) -> None:
        self._hold(place, 0)
        self._places.discard(place)

    def _hold(self, place: Place, count: int) -> None:
        self._bytes += count - place.bytes
        place.bytes = count

    def _check(self, place: Place) -> None:
        if place not in self._places:
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
