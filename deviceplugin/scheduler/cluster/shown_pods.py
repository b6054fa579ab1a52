"""Which pods the inventory of a node shows: pure.

A pod is shown when the inventory has slices of at least what each of its containers asked for, and
as many whole devices or replicas as all of them asked for, under its namespace and name. Plain init
containers have no name there and are not looked for.

A name may come again, as that of a StatefulSet's pod, while the inventory still has what the one
before held. That is *left over* (`LeftOver`), from the moment on at which the pod is known to have
gone, and counts for nobody who has the name later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deviceplugin.model.pod_requests import ContainerKind, PodRequest
from deviceplugin.model.units import Half
from deviceplugin.pages.published import PublishedNode, PublishedSlice
from deviceplugin.scheduler.search.node_view import Reservation, Taken

PodName = tuple[str, str]


@dataclass(slots=True)
class Shown:
    """What an inventory shows under one name.

    Attributes:
        devices: whole devices and replicas, by resource.
    """

    slices: list[PublishedSlice] = field(default_factory=list)
    devices: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What pods that have gone still hold under one name.

    Attributes:
        slices: their ids.
        devices: how many, by resource.
        since_s: when the last of these pods went.
    """

    slices: frozenset[str]
    devices: Mapping[str, int]
    since_s: float


NOTHING_LEFT = LeftOver(frozenset(), {}, 0.0)
_NOTHING = Shown()


def shown_pods(published: PublishedNode) -> dict[PodName, Shown]:
    """Returns what is shown under each name."""
    found: dict[PodName, Shown] = {}
    for each in published.slices:
        if each.pod is not None:
            found.setdefault(each.pod, Shown()).slices.append(each)
    for resource in published.resources:
        for pod in resource.pods:
            if pod != ("", ""):
                devices = found.setdefault(pod, Shown()).devices
                devices[resource.name] = devices.get(resource.name, 0) + 1
    return found


def is_shown(request: PodRequest, domain: str, shown: Shown | None, left: LeftOver) -> bool:
    """Returns whether the inventory has all that a pod's containers asked for.

    Args:
        shown: under its name.
        left: what of that earlier pods hold.
    """
    if shown is None:
        return False
    wanted: dict[str, int] = {}
    named = [each for each in request.containers if each.kind is not ContainerKind.INIT]
    for container in named:
        for resource, count in container.devices(domain).items():
            wanted[resource] = wanted.get(resource, 0) + count
        families = container.families(domain)
        held = [
            units
            for each in shown.slices
            if each.container == container.name and each.id not in left.slices
            for units in each.units.values()
        ]
        # Of a container that is being admitted one half may be there and the other to come.
        for number, half in enumerate(Half):
            asked = sum(container.amount(domain, family, half) for family in families)
            if sum(units[number] for units in held) < asked:
                return False
        if families and not held:
            return False
    return bool(named) and all(
        shown.devices.get(resource, 0) - left.devices.get(resource, 0) >= count
        for resource, count in wanted.items()
    )


def left_by_pod(shown: Shown | None, now_s: float) -> LeftOver:
    """Returns what a pod that goes leaves over: all under its name, earlier pods' too."""
    if shown is None:
        return NOTHING_LEFT
    return LeftOver(frozenset(each.id for each in shown.slices), dict(shown.devices), now_s)


def still_left(left: LeftOver, before: Shown | None, after: Shown | None) -> LeftOver | None:
    """Returns what of it a newer inventory still has; None where that is nothing.

    Devices have no name of their own: those that went are the earlier pod's.
    """
    before, after = before or _NOTHING, after or _NOTHING
    slices = left.slices & {each.id for each in after.slices}
    devices: dict[str, int] = {}
    for resource, count in left.devices.items():
        now = after.devices.get(resource, 0)
        remaining = min(now, count - max(0, before.devices.get(resource, 0) - now))
        if remaining > 0:
            devices[resource] = remaining
    return LeftOver(slices, devices, left.since_s) if slices or devices else None


def held_by(shown: Shown | None, left: LeftOver) -> Reservation:
    """Returns what a shown pod holds."""
    if shown is None:
        return Reservation()
    gpus = taken_by(each for each in shown.slices if each.id not in left.slices)
    devices = {
        resource: rest
        for resource, count in shown.devices.items()
        if (rest := count - left.devices.get(resource, 0)) > 0
    }
    return Reservation(gpus, devices)


def taken_by(slices: Iterable[PublishedSlice]) -> dict[str, Taken]:
    """Returns what slices hold, by the UUID of the GPU."""
    found: dict[str, Taken] = {}
    for each in slices:
        for uuid, (core, memory) in each.units.items():
            found[uuid] = found.get(uuid, Taken(0, 0, 0)) + Taken(core, memory, 1)
    return found
