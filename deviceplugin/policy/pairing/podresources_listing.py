"""What a podresources listing says about the allocations: whose they are, and which have ended.

Pure. A listing names, per active container, the units the kubelet has on record. It may be behind
(a kubelet that just started lists nothing) or forgetful (kubernetes#137534), so an allocation is
given up only when it is missing for a while *and* either its pod is gone or nothing of it runs. An
offer of its units by the kubelet says so, too: then one listing is enough, and two in a row
for an allocation that was never listed, whose answer the kubelet may not have recorded yet.

Plain init containers are never listed. One is known by a later container of its pod having some of
its units, and lives as long as that one; else the kubelet's checkpoint speaks for it. So it does
for a pod that is not listed: a kubelet that starts knows none until the API server has answered.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner

#: How long an allocation must be missing before it counts as ended.
ENDED_AFTER_S = 3.0
#: The same for one that was never listed: its pod may just be being admitted.
NEVER_SEEN_AFTER_S = 10.0
#: The same for one that the kubelet's checkpoint names, although pods of the API server are listed:
#: a kubelet that starts takes in its pods one after the other, and admits each of them between.
RECORDED_AFTER_S = 20.0


@dataclass(frozen=True, slots=True)
class Listed:
    """One active container and what it has of our resources.

    Attributes:
        units: of the resources of fractions.
        devices: given whole or as replicas, each with its resource's name.
    """

    owner: Owner
    units: frozenset[str]
    devices: tuple[tuple[str, str], ...] = ()

    @property
    def given(self) -> frozenset[str]:
        """Units and devices alike."""
        return self.units.union(each for _, each in self.devices)


@dataclass(frozen=True, slots=True)
class ListingFindings:
    """What to do after a listing.

    Attributes:
        changed: allocations with a new state (owner known, missing or back).
        ended: allocations whose units are free.
        identified: those of ``changed`` whose owner was not known before.
    """

    changed: tuple[Allocation, ...]
    ended: tuple[Allocation, ...]
    identified: tuple[Allocation, ...]


def examine(  # noqa: C901 - rules in their order
    book: AllocationBook,
    listing: Iterable[Listed],
    now_s: float,
    running: Callable[[str], bool],
    offered: frozenset[str] = frozenset(),
    recorded: Callable[[Allocation], bool] = lambda allocation: False,
    node: str = "",
) -> ListingFindings:
    """Compares a listing with the book.

    Args:
        listing: taken while no `Allocate` was in flight.
        now_s: seconds on the agent's monotonic clock.
        running: whether an allocation has live processes.
        offered: units that the kubelet offers right now, so believes free.
        recorded: whether the kubelet's checkpoint names an allocation whose pod is still there.
        node: its name, with which the names of static pods end; empty where it is not known.
    """
    containers = list(listing)
    by_unit: dict[str, int] = {}
    for number, container in enumerate(containers):
        by_unit.update(dict.fromkeys(container.units, number))
        by_unit.update(dict.fromkeys((each for _, each in container.devices), number))
    pods = {(c.owner.namespace, c.owner.pod) for c in containers}
    knows_pods = any(_is_of_api(pod, node) for _, pod in pods)
    changed, identified = [], []
    missing: set[str] = set()
    ended: dict[str, Allocation] = {}
    # The newest first: an init container is as missing, or over, as those that have its units now.
    for allocation in reversed(book.allocations.values()):
        given = allocation.given
        # Units that were passed on are listed for whom they were passed on to.
        own = () if book.has_passed_on(allocation) else given
        owners = {containers[n].owner for n in set(map(by_unit.get, own)) if n is not None}
        if owners or book.has_passed_on(allocation, missing):
            owner = owners.pop() if len(owners) == 1 else allocation.owner
            if owner != allocation.owner or allocation.missing_since:
                new = replace(allocation, owner=owner, missing_since=0.0)
                changed.append(new)
                if owner != allocation.owner:
                    identified.append(new)
            continue
        whose = allocation.owner and (allocation.owner.namespace, allocation.owner.pod)
        if whose not in pods and offered.isdisjoint(given) and recorded(allocation):
            known = allocation.owner
            may_be_over = knows_pods and known is not None and _is_of_api(known.pod, node)
            if not may_be_over or running(allocation.allocation_id):
                if allocation.missing_since:  # looked at before its pod had a directory
                    changed.append(replace(allocation, missing_since=0.0))
                continue
            if now_s - (allocation.missing_since or now_s) < RECORDED_AFTER_S:
                if not allocation.missing_since:
                    changed.append(replace(allocation, missing_since=now_s))
                continue
        missing.add(allocation.allocation_id)
        since = allocation.missing_since or now_s
        lives_on = book.has_passed_on(allocation, ended)
        # Containers with units in common are of one pod; what is offered of one ends them all, but
        # for one that may have the units of a pod that failed and is being admitted itself.
        others = book.sharing_with(allocation) if allocation.settled else []
        kin = (unit for other in others for unit in other.given)
        is_offered = not offered.isdisjoint((*given, *kin))
        if not lives_on and _has_ended(allocation, since, now_s, pods, running, is_offered):
            ended[allocation.allocation_id] = allocation
        elif not allocation.missing_since:
            changed.append(replace(allocation, missing_since=now_s))
    return ListingFindings(tuple(changed), tuple(ended.values()), tuple(identified))


def _is_of_api(pod: str, node: str) -> bool:
    """Returns whether a pod is one of the API server's; a static one the kubelet has of itself."""
    return bool(node) and not pod.endswith(f"-{node}")


def _has_ended(
    allocation: Allocation,
    missing_since: float,
    now_s: float,
    pods: set[tuple[str, str]],
    running: Callable[[str], bool],
    is_offered: bool,
) -> bool:
    if is_offered:
        # One that nobody has listed yet may be an answer that the kubelet has not recorded yet.
        if allocation.owner is None and not allocation.missing_since and not allocation.refused:
            return False
    elif allocation.owner is None:
        if now_s - max(allocation.changed_s, missing_since) < NEVER_SEEN_AFTER_S:
            return False
    elif now_s - missing_since < ENDED_AFTER_S:
        return False
    owner = allocation.owner
    if owner is not None and (owner.namespace, owner.pod) not in pods:
        return True
    return not running(allocation.allocation_id)


def conflict(book: AllocationBook, allocation: Allocation, listing: Iterable[Listed]) -> str | None:
    """Returns why a container may not start with this allocation, None where it may.

    Either two containers ended in one allocation, or one container in two allocations (two GPUs or
    two families): both would share files that belong to one.
    """
    mine = set(allocation.given)
    holders = [container for container in listing if mine & container.given]
    for unit in mine:
        both = [str(c.owner) for c in holders if unit in c.given]
        if len(both) > 1:
            return (
                f"unit {unit} of allocation {allocation.allocation_id} is on the kubelet's record "
                f"for {' and '.join(both)} at once; delete one of these pods"
            )
    if book.has_passed_on(allocation):
        return None  # an init container's: it has ended before the others start
    for container in holders:
        if container.devices and not allocation.replicas:
            resource, device_id = container.devices[0]
            return (
                f"container {container.owner} holds a slice of GPU {allocation.uuid} and "
                f"{device_id} of {resource}; a container has either slices or whole devices"
            )
        foreign = mine - container.given
        if foreign:
            return (
                f"core and memory of allocation {allocation.allocation_id} went to different "
                f"containers ({container.owner} has only {len(mine) - len(foreign)} of its "
                f"{len(mine)} units); each must ask for both halves, or one at a time"
            )
        for other in book.allocations.values():
            if other.allocation_id == allocation.allocation_id or book.has_passed_on(other):
                continue
            if not container.given.isdisjoint(other.given):
                return (
                    f"container {container.owner} holds slices of GPU {allocation.uuid} and GPU "
                    f"{other.uuid}; a container has one slice, of one family"
                )
    return None


def device_conflict(
    resource: str, device_ids: Iterable[str], listing: Sequence[Listed]
) -> str | None:
    """Returns why a container may not start with whole devices, None where it may: another one has
    one of them, too, or it has a slice as well.
    """
    for each in device_ids:
        holders = [c for c in listing if (resource, each) in c.devices]
        if len(holders) > 1:
            both = " and ".join(str(c.owner) for c in holders)
            return (
                f"{each} of {resource} is on the kubelet's record for {both} at once; delete one "
                "of these pods"
            )
        if holders and holders[0].units:
            return (
                f"container {holders[0].owner} holds {each} of {resource} and a slice; a container "
                "has either slices or whole devices"
            )
    return None
