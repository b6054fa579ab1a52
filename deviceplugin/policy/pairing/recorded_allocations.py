"""Which allocations have ended, while podresources does not answer: by the kubelet's checkpoint.

Pure. The checkpoint names the allocation of each container that was admitted, and keeps it after
the pod's end until it is next written; the pod's directory goes with the pod. So an allocation is
given up that the checkpoint does not name, or names for pods without a directory only, and of which
nothing runs, when that lasts a while. An allocation that no container was started with may be one
whose admission goes on: the kubelet writes when it has all devices of the container, those of other
plugins too. An offer of its units by the kubelet, which believes them free then, shortens the time;
it is not enough alone (kubernetes#137534).
"""

from collections.abc import Callable, Container
from dataclasses import replace

from deviceplugin.model.allocations import Allocation, AllocationBook

from . import podresources_listing
from .podresources_listing import ListingFindings

#: What other plugins may take for the rest of a container's devices.
NEVER_RECORDED_AFTER_S = 60.0


def examine(
    book: AllocationBook,
    recorded: Container[str],
    now_s: float,
    running: Callable[[str], bool],
    offered: frozenset[str] = frozenset(),
) -> ListingFindings:
    """Compares the kubelet's checkpoint with the book.

    Args:
        recorded: ids of allocations that it names for a pod which is still there; read while no
            `Allocate` was in flight.
        now_s: seconds on the agent's monotonic clock.
        running: whether an allocation has live processes.
        offered: units that the kubelet offers right now.
    """
    changed: list[Allocation] = []
    ended: dict[str, Allocation] = {}
    # The newest first: an init container lives as long as those that have its units now.
    for allocation in reversed(book.allocations.values()):
        mine = allocation.allocation_id
        if mine in recorded or book.has_passed_on(allocation, ended):
            if allocation.missing_since:
                changed.append(replace(allocation, missing_since=0.0))
            continue
        since_s = allocation.missing_since or now_s
        is_offered = not offered.isdisjoint(allocation.given)
        if now_s - since_s >= _patience_s(allocation, is_offered) and not running(mine):
            ended[mine] = allocation
        elif not allocation.missing_since:
            changed.append(replace(allocation, missing_since=now_s))
    return ListingFindings(tuple(changed), tuple(ended.values()), ())


def _patience_s(allocation: Allocation, is_offered: bool) -> float:
    """Returns how long it must have been missing."""
    if allocation.started or allocation.owner is not None:
        return 0.0 if is_offered else podresources_listing.ENDED_AFTER_S
    return podresources_listing.NEVER_SEEN_AFTER_S if is_offered else NEVER_RECORDED_AFTER_S
