"""What is free of a node next to pods that another scheduler has put there and not bound yet. Pure.

A gang's pods are placed one after the other in the scheduler's memory and bound when all have a
place, so the cluster shows none of them meanwhile. Which GPU each gets is decided on the node, in
the order in which they arrive there, and nobody knows that order. So small ones first and large
ones first are both tried: a node will do where all have a place either way.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.scheduler.search.node_view import NodeView, Reservation
from deviceplugin.scheduler.search.plans import Plan, Refusal, short

Planner = Callable[[NodeView, PodRequest], Plan | Refusal]


def room_beside(
    view: NodeView, request: PodRequest, unbound: Sequence[PodRequest], planner: Planner
) -> tuple[NodeView, Plan] | Refusal:
    """Returns what is free of a node before a pod comes last, and where it would go then.

    Args:
        unbound: the pods that have a place on the node and are not bound yet.

    Raises:
        UsageError: a wish that is not allowed.
    """
    last = _put(view, [*_by_size(unbound, is_large_first=True), request], planner)
    if isinstance(last, Refusal) or not unbound:
        return last
    everyone = [*unbound, request]
    if len({_size(each) for each in everyone}) > 1:
        for is_large_first in (False, True):
            found = _put(view, _by_size(everyone, is_large_first), planner)
            if isinstance(found, Refusal):
                return found
    return last


def less(view: NodeView, reservation: Reservation) -> NodeView:
    """Returns what is free of a node once a pod has taken its part; never less than nothing."""
    gpus = []
    for gpu in view.gpus:
        taken = reservation.gpus.get(gpu.uuid)
        if taken is not None:
            containers = gpu.containers_left
            if containers is not None:
                containers = max(0, containers - taken.containers)
            gpu = replace(
                gpu,
                core=max(0, gpu.core - taken.core),
                memory=max(0, gpu.memory - taken.memory),
                containers_left=containers,
                is_empty=False,
            )
        gpus.append(gpu)
    devices = {
        name: replace(room, free=max(0, room.free - reservation.devices.get(name, 0)))
        for name, room in view.devices.items()
    }
    return replace(view, gpus=tuple(gpus), devices=devices)


def _put(
    view: NodeView, requests: Sequence[PodRequest], planner: Planner
) -> tuple[NodeView, Plan] | Refusal:
    """Returns the room before the last of some pods, and its plan."""
    for number, request in enumerate(requests, 1):
        found = planner(view, request)
        if isinstance(found, Refusal):
            if len(requests) == 1:
                return found
            others = f"next to {len(requests) - 1} that are to be bound"
            return Refusal(short(f"{others}: {found.reason}"), found.resolvable or number > 1)
        if number == len(requests):
            return view, found
        view = less(view, found.reservation)
    raise AssertionError("no pod")


def _size(request: PodRequest) -> tuple[tuple[str, int], ...]:
    return tuple(
        sorted((name, n) for each in request.containers for name, n in each.amounts.items())
    )


def _by_size(requests: Sequence[PodRequest], is_large_first: bool) -> list[PodRequest]:
    return sorted(requests, key=_weight, reverse=is_large_first)


def _weight(request: PodRequest) -> tuple[int, int]:
    """Returns core units first, since they are the same on all GPUs; then all else."""
    core = rest = 0
    for name, amount in _size(request):
        if name.endswith("-core"):
            core += amount
        else:
            rest += amount
    return core, rest
