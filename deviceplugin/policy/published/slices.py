"""What containers hold of GPUs that are shared in units, as the node's agent publishes it. Pure.

Each unit counts once: those that an init container passed on count for the container that has them
now. A container with core alone that has not started gets memory when it does; it counts already,
or a scheduler would give it to somebody else meanwhile. Whose a slice is is not told while its
other half may still come: a scheduler that finds a pod's name believes that it sees all of it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import Half, gpu_of, half_of
from deviceplugin.pages.published import PublishedSlice
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.pairing.implicit_units import complete_start, default_memory
from deviceplugin.policy.pairing.pairing import JOIN_WINDOW_S
from libvgpu.errors import AllocationRefused


@dataclass(frozen=True, slots=True)
class Holdings:
    """The book at one moment, as far as it matters here.

    Attributes:
        allocations: the oldest first.
        shared: ids of the holders of each unit that has several, the newest last.
        halves: ids of those whose other half may come.
    """

    allocations: Sequence[Allocation] = ()
    shared: Mapping[str, Sequence[str]] = field(default_factory=dict)
    halves: Set[str] = frozenset()


def half_until_s(allocation: Allocation, now_s: float) -> float | None:
    """Returns until when the other half of an allocation may come, None where it does not.

    Args:
        now_s: on the clock of `Allocation.changed_s`.
    """
    is_half = bool(allocation.core) is not bool(allocation.memory)
    until_s = allocation.changed_s + JOIN_WINDOW_S
    return until_s if is_half and not allocation.settled and now_s < until_s else None


def published_slices(layout: Layout, holdings: Holdings) -> tuple[PublishedSlice, ...]:
    """Returns the slices, by id; those that are replicas of a resource are left out."""
    started, more = _as_if_started(layout, holdings)
    found = []
    for allocation in started.allocations:
        if allocation.replicas:
            continue
        units = _own_units(allocation, started.shared)
        for uuid, count in more.get(allocation.allocation_id, {}).items():
            core, memory = units[uuid]
            units[uuid] = core, memory + count
        is_half = allocation.allocation_id in holdings.halves
        owner = allocation.owner if not is_half else None
        found.append(
            PublishedSlice(
                allocation.allocation_id,
                units,
                (owner.namespace, owner.pod) if owner is not None else None,
                owner.container if owner is not None else "",
            )
        )
    return tuple(sorted(found, key=lambda each: each.id))


def _as_if_started(
    layout: Layout, holdings: Holdings
) -> tuple[Holdings, Mapping[str, Mapping[str, int]]]:
    """Returns the book as it will be once all containers have started; and how much memory is to
    come, by allocation and GPU, for those whose start has to wait for it.
    """
    waiting = [h for h in holdings.allocations if _gets_memory_at_its_start(h)]
    if not waiting:
        return holdings, {}
    book = AllocationBook.of(holdings.allocations)
    more: dict[str, dict[str, int]] = {}
    for allocation in waiting:
        try:
            book.put(complete_start(layout, book, allocation))
        except AllocationRefused:
            more[allocation.allocation_id] = {
                uuid: default_memory(shared.memory_units, allocation.count(Half.CORE, uuid))
                for uuid in allocation.uuids
                if (shared := layout.find(uuid)) is not None
            }
    return Holdings(tuple(book.allocations.values()), book.shared_units()), more


def _gets_memory_at_its_start(allocation: Allocation) -> bool:
    has_memory = allocation.memory or allocation.implicit_units or allocation.replicas
    return bool(allocation.core) and not has_memory


def _own_units(
    allocation: Allocation, shared: Mapping[str, Sequence[str]]
) -> dict[str, tuple[int, int]]:
    """Returns how many core and memory units of each GPU it is the newest holder of."""
    uuids = allocation.uuids
    if len(uuids) == 1 and not shared:  # almost always
        more = [half_of(unit) for unit in (*allocation.implicit_units, *allocation.raised)]
        core = len(allocation.core) + more.count(Half.CORE)
        return {uuids[0]: (core, len(allocation.memory) + more.count(Half.MEMORY))}
    counts = {uuid: [0, 0] for uuid in uuids}
    for unit in dict.fromkeys(allocation.units):
        holders = shared.get(unit)
        if holders is None or holders[-1] == allocation.allocation_id:
            counts[gpu_of(unit)][half_of(unit) is Half.MEMORY] += 1
    return {uuid: (core, memory) for uuid, (core, memory) in counts.items()}
