"""Which container asks, and what else it will ask for: pure, from the pods that are bound here.

The kubelet says neither for whom a GetPreferredAllocation is nor how much of the other half will
follow. The pods of the node tell both, as far as they can be told apart:

1. A *candidate* is a container of a pod that the kubelet has not told of yet, that asks for just so
   many units of the half, and of which podresources shows none of it. Containers before one that
   podresources shows have had their turn.
2. The kubelet takes pods in one by one, and podresources lists a pod from the moment its admission
   begins. So the pod that asks is listed, and pods that wait for their turn are not: where a
   candidate is listed, only listed ones count.
3. Where podresources lists a pod that is not known here, that may be the one that asks, and nothing
   is expected. One that has stayed unknown for long is not: the caller leaves it out.

Several candidates may be left: containers of one pod, a pod whose plain init container had its turn
(podresources never shows those), or, without podresources, every pod that waits. Then the GPU must
hold the most that any of them needs, so it holds what the right one needs. The choice that counts
is that of the pod listed last, or without podresources of the one that has waited longest; it too
must hold all that. So a guess that is wrong costs packing and nothing else.

What a plain init container has goes to later containers of its pod, which therefore must be on its
GPU: there must be room for all of them (`_tied`).
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from deviceplugin.model.allocations import Allocation
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import Half, half_of
from libvgpu.limits import Family

from .placement import Need
from .podresources_listing import Listed

#: A pod by namespace and name.
PodName = tuple[str, str]
Listing = Sequence[Listed] | None


@dataclass(frozen=True, slots=True)
class BoundPods:
    """What is known of the pods of this node.

    Attributes:
        node: its name.
        pods: those that ask for something, as they are expected to be admitted.
        names: of all pods, also of those that ask for nothing.
        is_current: a pod that is bound now becomes known within a moment.
    """

    node: str = ""
    pods: tuple[PodRequest, ...] = ()
    names: frozenset[PodName] = frozenset()
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What a GetPreferredAllocation asks for."""

    domain: str
    family: Family
    half: Half
    count: int

    def amounts(self, container: ContainerRequest) -> tuple[int, int]:
        """Returns how much a container asks for of this half and of the other one."""
        own = container.amount(self.domain, self.family, self.half)
        return own, container.amount(self.domain, self.family, self.half.other)


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of the container that asks.

    Attributes:
        pod: namespace and name, joined, of the one whose choice counts.
        need: what its GPU must hold, where it is one.
        gpus: that were chosen for it; empty where nobody did.
    """

    pod: str
    need: Need
    gpus: tuple[str, ...] = ()


def unknown(known: BoundPods, listing: Listing, strangers: Container[PodName]) -> set[PodName]:
    """Returns the pods that podresources lists and that are not known.

    Args:
        strangers: those that have been unknown for long, and do not count.
    """
    listed = {(each.owner.namespace, each.owner.pod) for each in listing or ()}
    return {name for name in listed - known.names if name not in strangers}


def expected(
    known: BoundPods, listing: Listing, asked: Asked, strangers: Container[PodName] = ()
) -> Expected | None:
    """Returns what is expected of the container that asks, None where that is not known.

    Args:
        listing: None where podresources did not tell.
        strangers: see `unknown`.
    """
    if unknown(known, listing, strangers):
        return None
    found, are_listed = _candidates(known, listing, asked)
    if not found:
        return None
    needs = [_need(pod, place, asked) for pod, places in found for place in places]
    need = Need(
        max(each.core for each in needs),
        max(each.memory for each in needs),
        max(each.default_core for each in needs),
    )
    pod, places = found[-1 if are_listed else 0]
    gpus: tuple[str, ...] = ()
    if pod.chosen is not None and pod.chosen.node == known.node:
        gpus = pod.chosen.containers.get(pod.containers[places[0]].name, ())
    return Expected(str(pod), need, gpus)


def is_of_another(
    known: BoundPods,
    listing: Listing,
    asked: Asked,
    partner: Allocation,
    strangers: Container[PodName] = (),
) -> bool:
    """Returns whether an open allocation is surely not of the container that asks.

    Args:
        partner: it has the other half.
        strangers: see `unknown`.
    """
    if listing is None or unknown(known, listing, strangers):
        return False
    has = partner.of(asked.half.other)
    holders = [each.owner for each in listing if has[0] in each.units]
    if len(holders) == 1:
        owner = holders[0]
        pods = [p for p in known.pods if (p.namespace, p.name) == (owner.namespace, owner.pod)]
        whose = [c for pod in pods for c in pod.containers if c.name == owner.container]
        return len(whose) == 1 and asked.amounts(whose[0])[0] != asked.count
    # A plain init container's: then it asks for what is had and what is asked for, both.
    found = [
        asked.amounts(pod.containers[place])[1]
        for pod, places in _candidates(known, listing, asked)[0]
        for place in places
    ]
    return bool(found) and len(has) not in found


def _candidates(
    known: BoundPods, listing: Listing, asked: Asked
) -> tuple[list[tuple[PodRequest, list[int]]], bool]:
    """Returns the pods that may ask, each with the places of those of its containers that may, and
    whether podresources lists them.
    """
    waiting = [
        pod
        for pod in known.pods
        if not pod.is_ended
        and not pod.is_acknowledged
        and any(asked.amounts(c)[0] == asked.count for c in pod.containers)
    ]
    shown: dict[PodName, list[Listed]] = {(pod.namespace, pod.name): [] for pod in waiting}
    for each in listing or ():
        if (name := (each.owner.namespace, each.owner.pod)) in shown:
            shown[name].append(each)
    found = []
    for pod in waiting:
        here = shown[pod.namespace, pod.name]
        if places := _places(pod, here, asked, listing is not None):
            found.append((pod, places, bool(here)))
    are_listed = any(is_listed for _, _, is_listed in found)
    if are_listed:
        found = [each for each in found if each[2]]
    return [(pod, places) for pod, places, _ in found], are_listed


def _places(pod: PodRequest, shown: Iterable[Listed], asked: Asked, is_listing: bool) -> list[int]:
    """Returns the places of the containers of a pod that may ask.

    Args:
        is_listing: podresources told. Then only plain init containers may have had their turn
            unseen: whoever comes after another one that is not shown waits for it.
    """
    has = {each.owner.container: each for each in shown if each.given}
    begun = [place for place, each in enumerate(pod.containers) if each.name in has]
    first = 0
    if begun:
        container = pod.containers[begun[-1]]
        latest = has[container.name]
        is_done = (
            latest.devices
            or not asked.amounts(container)[0]
            or any(half_of(unit) is asked.half for unit in latest.units)
        )
        first = begun[-1] + bool(is_done)
    last = len(pod.containers)
    if is_listing:
        seen = (n for n in range(first, last) if pod.containers[n].kind is not ContainerKind.INIT)
        last = next(seen, last - 1) + 1
    return [
        place
        for place in range(first, last)
        if asked.amounts(pod.containers[place])[0] == asked.count
    ]


def _need(pod: PodRequest, place: int, asked: Asked) -> Need:
    """Returns what a container's GPU must hold for it, and for those that must be there too."""
    core = memory = default_core = 0
    for container, reused in _tied(pod.containers[place:], asked):
        units = {half: container.amount(asked.domain, asked.family, half) for half in Half}
        core += units[Half.CORE] - reused[Half.CORE]
        memory += units[Half.MEMORY] - reused[Half.MEMORY]
        if not units[Half.MEMORY]:
            default_core = max(default_core, units[Half.CORE])
    return Need(core, memory, default_core)


def _tied(
    containers: Sequence[ContainerRequest], asked: Asked
) -> list[tuple[ContainerRequest, dict[Half, int]]]:
    """Returns the first container and those that get units of it, each with how many it gets.

    What a plain init container has stays to be had for all that follow, what another one got of it
    does not.
    """
    left = dict.fromkeys(Half, 0)
    found: list[tuple[ContainerRequest, dict[Half, int]]] = []
    for container in containers:
        units = {half: container.amount(asked.domain, asked.family, half) for half in Half}
        reused = {half: min(units[half], left[half]) for half in Half}
        if found and not any(reused.values()):
            continue
        found.append((container, reused))
        for half in Half:
            if container.kind is ContainerKind.INIT:
                left[half] += units[half] - reused[half]
            else:
                left[half] -= reused[half]
    return found
