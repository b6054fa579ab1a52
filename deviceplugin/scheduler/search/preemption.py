"""Which pods must go so that another one fits: pure.

A scheduler names victims by sums over a node, and so may end pods on one GPU when the preemptor
needs room on another. Here only those are named after whose end the whole pod has a place.

Tried are the holders of each GPU in turn, those that the scheduler named, and all: of each of these
sets as many are spared as can be, the highest and the oldest first, as kube-scheduler does. Of what
is left that set is taken whose highest priority is lowest, then the smallest, then the youngest.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.model.units import CORE_UNITS_PER_GPU

from .fit import Plan, plan
from .node_view import NodeView, Reservation
from .wishes import Wishes


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that has something of a node.

    Attributes:
        created_at: seconds since the epoch.
        reservation: what it has, of devices and GPUs.
    """

    uid: str
    priority: int
    created_at: float
    reservation: Reservation

    @property
    def holds(self) -> bool:
        """It has anything that could be given to another."""
        return bool(self.reservation.gpus or self.reservation.devices)


#: A node as it would be if some of its pods had gone.
Without = Callable[[Set[str]], NodeView]


def victims(
    view_without: Without,
    request: PodRequest,
    wishes: Wishes,
    holders: Sequence[Holder],
    given: Iterable[str],
) -> tuple[str, ...] | None:
    """Returns the pods that must go, None where not even all of lower priority do.

    Args:
        request: the preemptor.
        holders: the pods of the node and what they have of it.
        given: UIDs of those that the scheduler named; those without a slice or device are named
            again, since they make room for what is not known here.
    """
    given = tuple(dict.fromkeys(given))
    holding = {each.uid: each for each in holders if each.holds}
    kept = [uid for uid in given if uid not in holding]
    lower = [each for each in holding.values() if each.priority < request.priority]
    found = [
        least
        for among in _sets(lower, frozenset(given), view_without(frozenset()))
        if (least := _spared(among, view_without, request, wishes)) is not None
    ]
    if not found:
        every = _spared(lower, view_without, request, wishes)
        if every is None:
            return None
        found = [every]
    best = min(found, key=_cost)
    return (*kept, *(each.uid for each in best))


def freed(view: NodeView, holders: Iterable[Holder], gone: Set[str]) -> NodeView:
    """Returns a node as it would be if some pods had gone, by what they have of it.

    For who has nothing more exact: what is counted twice for a moment is given back twice.
    """
    back = [each.reservation for each in holders if each.uid in gone]
    gpus = []
    for gpu in view.gpus:
        taken = [each.gpus[gpu.uuid] for each in back if gpu.uuid in each.gpus]
        core = min(CORE_UNITS_PER_GPU, gpu.core + sum(each.core for each in taken))
        memory = min(gpu.memory_units, gpu.memory + sum(each.memory for each in taken))
        containers = gpu.containers_left
        if containers is not None:
            containers += sum(each.containers for each in taken)
        empty = core == CORE_UNITS_PER_GPU and memory == gpu.memory_units
        gpus.append(
            replace(gpu, core=core, memory=memory, containers_left=containers, is_empty=empty)
            if taken
            else gpu
        )
    devices = {
        name: replace(
            room,
            free=min(room.total, room.free + sum(each.devices.get(name, 0) for each in back)),
        )
        for name, room in view.devices.items()
    }
    return replace(view, gpus=tuple(gpus), devices=devices)


def _sets(lower: list[Holder], given: Set[str], view: NodeView) -> Iterator[list[Holder]]:
    """Yields the sets of pods of which some may do: nobody, who was named, who is on each GPU."""
    yield []
    yield [each for each in lower if each.uid in given]
    for gpu in view.gpus:
        yield [each for each in lower if gpu.uuid in each.reservation.gpus]


def _spared(
    among: list[Holder], view_without: Without, request: PodRequest, wishes: Wishes
) -> list[Holder] | None:
    """Returns those who must go of some, None where all of them are not enough."""

    def fits(gone: Iterable[Holder]) -> bool:
        view = view_without(frozenset(each.uid for each in gone))
        return isinstance(plan(view, request, wishes), Plan)

    if not fits(among):
        return None
    going = list(among)
    for each in sorted(among, key=lambda holder: (-holder.priority, holder.created_at)):
        rest = [other for other in going if other is not each]
        if fits(rest):
            going = rest
    return sorted(going, key=lambda holder: (-holder.priority, holder.created_at))


def _cost(gone: list[Holder]) -> tuple[float, ...]:
    """Returns by what sets are ordered: highest priority, number, sum of priorities, age."""
    return (
        max((each.priority for each in gone), default=-math.inf),
        len(gone),
        sum(each.priority for each in gone),
        -min((each.created_at for each in gone), default=0.0),
    )
