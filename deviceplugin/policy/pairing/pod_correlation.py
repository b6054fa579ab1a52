"""Which container asks, as far as podresources tells.

Pods are admitted one by one, so a pod that is listed at the second half and was not at the first
has come since, and the first half's admission is over: it must not be joined.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import Half
from libvgpu.limits import Family

from . import pairing
from .podresources_listing import Listed

#: Pods by namespace and name, with what they have.
Pods = dict[tuple[str, str], frozenset[str]]
#: The same to keep: of each pod one unit that it has, None where it has none.
Seen = dict[tuple[str, str], str | None]


def pods_of(listing: Sequence[Listed]) -> Pods:
    """Returns the pods of a listing with their units."""
    pods: Pods = {}
    for listed in listing:
        pod = (listed.owner.namespace, listed.owner.pod)
        pods[pod] = pods[pod] | listed.units if pod in pods else listed.units
    return pods


def newcomers(then: Seen, now: Pods) -> set[tuple[str, str]]:
    """Returns the pods that were not there before.

    podresources tells no UIDs. A pod keeps its units as long as it lives, so one that lacks the
    unit it had is another under the same name.
    """
    return {
        pod
        for pod, units in now.items()
        if pod not in then or not units.issuperset(filter(None, [then[pod]]))
    }


@dataclass(frozen=True, slots=True)
class _Asked:
    """The last GetPreferredAllocation, and which pods there were."""

    family: Family
    half: Half
    pods: Seen
    allocations_done: int


class PodCorrelation:
    """Remembers which pods there were when allocations were opened; used under the agent's lock."""

    def __init__(self) -> None:
        self._asked: _Asked | None = None
        self._pods_at: dict[str, Seen] = {}  # by allocation id, where nobody listed it yet

    def prefers(
        self,
        book: AllocationBook,
        family: Family,
        half: Half,
        listing: Sequence[Listed] | None,
        now_s: float,
        allocations_done: int,
    ) -> list[Allocation]:
        """Notes a GetPreferredAllocation, and ends an open allocation whose admission is over.

        Args:
            listing: None where podresources could not be asked.
            now_s: seconds on the agent's monotonic clock.
            allocations_done: how many `Allocate` there were.

        Returns:
            Allocations of plain init containers of the pod that asks: opened when there were the
            same pods, and never listed.
        """
        self._asked = None
        if listing is None:
            return []
        pods = pods_of(listing)
        kept = {pod: next(iter(units), None) for pod, units in pods.items()}
        self._asked = _Asked(family, half, kept, allocations_done)
        partner = pairing.open_allocation(book, family, half, now_s)
        if partner is not None:
            mine = {*partner.core, *partner.memory}
            its_own = {pod for pod, units in pods.items() if mine & units}
            then = self._pods_at.get(partner.allocation_id)
            if then is not None and newcomers(then, pods) - its_own:
                book.put(replace(partner, settled=True))
        allocations = book.allocations
        self._pods_at = {
            each: then
            for each, then in self._pods_at.items()
            if each in allocations
            and (allocations[each].owner is None or not allocations[each].settled)
        }
        return [
            allocations[each]
            for each, then in self._pods_at.items()
            if allocations[each].owner is None and not newcomers(then, pods)
        ]

    def opened(
        self,
        book: AllocationBook,
        allocation: Allocation,
        family: Family,
        half: Half,
        allocations_done: int,
    ) -> None:
        """Notes an `Allocate`, so which pods there were when its allocation was opened.

        The kubelet gives units of a plain init container to the next one without asking for a
        preference. That is in one admission, so no pod has come since.
        """
        asked, self._asked = self._asked, None
        if (
            asked is not None
            and (asked.family, asked.half) == (family, half)
            and asked.allocations_done == allocations_done
        ):
            self._pods_at.setdefault(allocation.allocation_id, asked.pods)
            return
        units = allocation.of(half)
        for ancestor in book.holders(units[0]):
            then = self._pods_at.get(ancestor.allocation_id)
            recent = allocation.changed_s - ancestor.changed_s <= pairing.JOIN_WINDOW_S
            if then is not None and recent and set(units) <= set(ancestor.of(half)):
                self._pods_at.setdefault(allocation.allocation_id, then)
