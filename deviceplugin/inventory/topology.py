"""How close GPUs are to each other, and which of those that are free lie closest.

Closeness is a number for two GPUs: 0 where nothing is known, up to 60 by what joins them on PCIe,
and above 100 by their NVLinks, each of which counts one. So a single NVLink beats any PCIe.

Of all sets of the wanted size, the best has the greatest sum of closeness over its pairs. Of equals
that one is taken which tears apart least, so that the GPUs left behind still lie close to each
other for the next request; of these the one with the lowest indexes. Pure, and the same every time;
`subsets` searches.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from deviceplugin.model.gpus import Gpu

from .subsets import Costs, cheapest

#: Above any closeness by PCIe.
NVLINK_BASE = 100
#: Levels of NVML's topology (0 the same board, 10 one PCIe switch, … 50 another socket) are
#: distances; this turns them into closeness.
_FARTHEST_LEVEL = 60
_SAME_NUMA, _OTHER_NUMA = 20, 10  # what levels 40 and 50 come to
UNKNOWN = 0


def closeness(
    nvlinks: int, level: int | None, numa_nodes: tuple[int | None, int | None] = (None, None)
) -> int:
    """Returns how close two GPUs are; more is closer.

    Args:
        nvlinks: how many NVLinks join them, directly or through switches.
        level: of their common ancestor as NVML numbers it; None where it does not know.
        numa_nodes: of each; used where nothing better is known.
    """
    if nvlinks > 0:
        return NVLINK_BASE + nvlinks
    if level is not None:
        return max(UNKNOWN, _FARTHEST_LEVEL - level)
    one, other = numa_nodes
    if one is None or other is None:
        return UNKNOWN
    return _SAME_NUMA if one == other else _OTHER_NUMA


class Neighbour(Protocol):
    """One of several GPUs; `closeness` to others is by their UUID."""

    @property
    def uuid(self) -> str: ...

    @property
    def closeness(self) -> Mapping[str, int]: ...


def closest(gpus: Sequence[Gpu], count: int, must_include: Collection[str] = ()) -> tuple[str, ...]:
    """Returns the UUIDs of the ``count`` GPUs that lie closest to each other, by index.

    Args:
        gpus: those that are free, in any order.
        count: how many are wanted.
        must_include: UUIDs of those that are among them in any case.

    Raises:
        ValueError: there are not so many, or ``must_include`` names others or more.
    """
    ordered = sorted(gpus, key=lambda gpu: (gpu.index, gpu.mig.number if gpu.mig else 0))
    return closest_of(ordered, count, must_include)


def closest_of(
    ordered: Sequence[Neighbour], count: int, must_include: Collection[str] = ()
) -> tuple[str, ...]:
    """Returns the same of GPUs that are in the order of their indexes already."""
    places = {gpu.uuid: place for place, gpu in enumerate(ordered)}
    strangers = sorted(set(must_include) - places.keys())
    if strangers:
        raise ValueError(f"{', '.join(strangers)} must be included and is not among the GPUs")
    required = sorted(places[uuid] for uuid in set(must_include))
    if not len(required) <= count <= len(ordered):
        raise ValueError(
            f"{count} of {len(ordered)} GPUs are wanted, {len(required)} of them certain"
        )
    return tuple(ordered[place].uuid for place in cheapest(_costs(ordered), count, required))


def _costs(gpus: Sequence[Neighbour]) -> Costs:
    """Returns costs by which the cheapest set is the best one."""
    near = [[_between(a, b) for b in gpus] for a in gpus]
    # Torn apart is what leads out of a set: all that leads to its GPUs, less what is inside, which
    # that counts twice. A closeness inside outweighs whatever can be torn.
    single = [sum(row) for row in near]
    weight = sum(single) + 2
    return Costs(single, [[-weight * value for value in row] for row in near])


def _between(one: Neighbour, other: Neighbour) -> int:
    if one is other:
        return 0
    # What is known from one side only counts, too.
    return max(one.closeness.get(other.uuid, 0), other.closeness.get(one.uuid, 0))
