"""Who is connected to a `CallServer`, by source address, and who goes first. Of one thread at once.

What a new connection costs must not grow with the crowd: others wait for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

#: An honest client sends a call in milliseconds. One that takes longer loses its place first.
_PROMPT_S = 1.0


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
        is_known: its client has shown a certificate, or had an answer.
    """

    end: Callable[[], None]
    source: str
    since_s: float
    phase: Phase = Phase.NEW
    bytes: int = 0
    is_known: bool = False


#: Of one source; the one that is longest in its phase comes first.
_Crowd = dict[Place, None]


class Crowds:
    """All places that are taken."""

    def __init__(self, known_most: int, clock: Callable[[], float]) -> None:
        """None is.

        Args:
            known_most: of more connections that are known one goes before those that are not.
        """
        self._known_most, self._clock = known_most, clock
        #: By source: of connections that are not known, and of those that are.
        self._by_source: dict[bool, dict[str, _Crowd]] = {False: {}, True: {}}
        self._count = {False: 0, True: 0}

    def __iter__(self) -> Iterator[Place]:
        """Yields all of them."""
        for crowds in self._by_source.values():
            for crowd in crowds.values():
                yield from crowd

    def __contains__(self, place: Place) -> bool:
        """Whether a place is still its connection's."""
        return place in self._by_source[place.is_known].get(place.source, ())

    def __len__(self) -> int:
        """How many there are."""
        return sum(self._count.values())

    def count_of(self, source: str) -> int:
        """Returns how many one source has."""
        return sum(len(crowds.get(source, ())) for crowds in self._by_source.values())

    def add(self, place: Place) -> None:
        """Puts one behind all others of its source."""
        self._by_source[place.is_known].setdefault(place.source, {})[place] = None
        self._count[place.is_known] += 1

    def remove(self, place: Place) -> None:
        """Takes one away that is there."""
        crowds = self._by_source[place.is_known]
        del crowds[place.source][place]
        if not crowds[place.source]:
            del crowds[place.source]
        self._count[place.is_known] -= 1

    def first_to_go(self, source: str | None = None) -> Place | None:
        """Returns whose place is given away: one of a source, or of the one with the most."""
        known_first = self._count[True] > self._known_most
        for is_known in (known_first, not known_first):
            crowds = self._by_source[is_known]
            if source is None:
                among = sorted(crowds.values(), key=len, reverse=True)
            else:
                among = [crowds.get(source, {})]
            found = next(filter(None, map(self._first_of, among)), None)
            if found is not None:
                return found
        return None

    def largest(self, asking: Place) -> Place | None:
        """Returns whose bytes make room: of the source with the most, a call that is late."""
        weights: Counter[str] = Counter()
        for each in self:
            weights[each.source] += each.bytes
        late = (each for each in self if each.bytes and each is not asking and self._is_late(each))
        return min(late, key=lambda each: (-weights[each.source], each.since_s), default=None)

    def _first_of(self, crowd: _Crowd) -> Place | None:
        """Returns a call that does not get on, else an idle connection, else the oldest call."""
        idle = young = None
        for each in crowd:
            if each.phase is Phase.IDLE:
                idle = idle or each
            elif self._is_late(each):
                return each
            elif each.phase is not Phase.ANSWERING:
                young = young or each
            if young and (idle or not each.is_known):
                break  # all others are younger, and only those that are known are idle
        return idle or young

    def _is_late(self, place: Place) -> bool:
        return (
            place.phase in (Phase.NEW, Phase.UNREAD, Phase.UNSENT)
            and self._clock() - place.since_s > _PROMPT_S
        )
