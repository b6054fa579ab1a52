"""The cheapest set of so many places, where every place and every pair of places has a cost.

Up to `EXACT_PLACES` every set is looked at. The places are cut into two halves; what each subset of
a half costs, and what each subset of one costs with each of the other, is built up place by place,
so a whole set takes two additions (16 places have 12 870 sets of 8). Among more, sets are grown
from every place by adding the cheapest, and one is what is left when the dearest is dropped again
and again; then one place is swapped for another as long as that helps.

Of equals, the set with the lowest places is taken. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

EXACT_PLACES = 16

_Score = tuple[int, tuple[int, ...]]  # cost and places; the lowest is the best


@dataclass(frozen=True, slots=True)
class Costs:
    """What sets of places cost; places count from 0.

    Attributes:
        single: of each place.
        pair: of each two, the same both ways, 0 for a place with itself.
    """

    single: Sequence[int]
    pair: Sequence[Sequence[int]]

    @property
    def places(self) -> range:
        """All places."""
        return range(len(self.single))

    def score(self, chosen: Iterable[int]) -> _Score:
        """Returns the cost of a set, and the set."""
        places = tuple(sorted(chosen))
        pairs = sum(self.pair[a][b] for a, b in combinations(places, 2))
        return sum(self.single[place] for place in places) + pairs, places

    def within(self, places: Sequence[int]) -> list[int]:
        """Returns the cost of each subset of some places, by mask (see `_bit`)."""
        found = [0]
        for number, place in enumerate(reversed(places)):
            rest = places[len(places) - number :]
            joined = _sums([self.pair[place][other] for other in rest])
            found += [
                old + self.single[place] + new for old, new in zip(found, joined, strict=True)
            ]
        return found

    def across(self, places: Sequence[int], others: Sequence[int]) -> list[list[int]]:
        """Returns what each subset of ``places`` costs with each of ``others``, by their masks."""
        found = [[0] * (1 << len(others))]
        for place in reversed(places):
            joined = _sums([self.pair[place][other] for other in others])
            found += [[old + new for old, new in zip(row, joined, strict=True)] for row in found]
        return found


def _sums(values: Sequence[int]) -> list[int]:
    """Returns the sum of each subset of ``values``, by mask."""
    found = [0]
    for value in reversed(values):
        found += [old + value for old in found]
    return found


def _bit(places: Sequence[int], place: int) -> int:
    """Returns the bit of a place in a mask of ``places``.

    The first has the highest, so that of two sets of one size that with the lower places has the
    greater mask.
    """
    return 1 << (len(places) - 1 - places.index(place))


def cheapest(costs: Costs, count: int, required: list[int]) -> list[int]:
    """Returns the cheapest set of ``count`` places.

    Args:
        required: places that are in it in any case; not more than ``count``, which is not more than
            there are places.
    """
    exact = len(costs.places) <= EXACT_PLACES
    return (_best_of_all if exact else _best_found)(costs, count, required)


def _best_of_all(costs: Costs, count: int, required: list[int]) -> list[int]:
    middle = len(costs.places) // 2
    first, second = costs.places[:middle], costs.places[middle:]
    within_first, within_second = costs.within(first), costs.within(second)
    across = costs.across(first, second)
    needed_first = sum(_bit(first, place) for place in required if place in first)
    needed_second = sum(_bit(second, place) for place in required if place in second)
    of_size: list[list[int]] = [[] for _ in range(len(second) + 1)]
    for mask in reversed(range(len(within_second))):
        if mask & needed_second == needed_second:
            of_size[mask.bit_count()].append(mask)
    best: tuple[int, int, int] | None = None  # cost and both masks
    for mask in reversed(range(len(within_first))):
        wanted = count - mask.bit_count()
        if mask & needed_first != needed_first or not 0 <= wanted <= len(second):
            continue
        row, own = across[mask], within_first[mask]
        for other in of_size[wanted]:
            cost = own + within_second[other] + row[other]
            if best is None or cost < best[0]:
                best = cost, mask, other
    assert best is not None, "there are as many places as are wanted"
    return [p for p in first if best[1] & _bit(first, p)] + [
        p for p in second if best[2] & _bit(second, p)
    ]


def _best_found(costs: Costs, count: int, required: list[int]) -> list[int]:
    if len(required) == count:
        return required
    starts = (place for place in costs.places if place not in required)
    found = {costs.score(_grown(costs, count, [*required, start])) for start in starts}
    found.add(costs.score(_shrunk(costs, count, required)))
    return list(min(_improved(costs, score, required) for score in found)[1])


def _grown(costs: Costs, count: int, chosen: list[int]) -> list[int]:
    """Adds what costs least with those that are there, until there are ``count``."""
    while len(chosen) < count:
        others = (place for place in costs.places if place not in chosen)
        chosen.append(min(others, key=lambda place: costs.score([*chosen, place])))
    return chosen


def _shrunk(costs: Costs, count: int, required: list[int]) -> list[int]:
    """Drops what leaves the least cost, until there are ``count``."""
    chosen = list(costs.places)
    while len(chosen) > count:
        loose = (place for place in chosen if place not in required)
        chosen.remove(min(loose, key=lambda place: costs.score(p for p in chosen if p != place)))
    return chosen


def _improved(costs: Costs, best: _Score, required: list[int]) -> _Score:
    """Swaps one GPU for another as long as that helps; each swap lowers the score, so it ends."""
    while True:
        kept = best[1]
        swaps = (
            costs.score((*(p for p in kept if p != old), new))
            for old in kept
            if old not in required
            for new in costs.places
            if new not in kept
        )
        found = min(swaps, default=best)
        if found >= best:
            return best
        best = found
