"""The units of a GPU that a raise above the request uses up: how many there are, and which. Pure.

They are withdrawn from the kubelet for as long as the allocation has them (`Allocation.raised`).
How many a raise needs is the resolver's to say; here they are counted, taken and given back.
"""

from dataclasses import dataclass, replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import Half, half_of
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.devices.offer import fits_layout, unit_names


@dataclass(frozen=True, slots=True)
class RaiseUnits:
    """Numbers of units of one GPU: a core unit is one percent of it."""

    core: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class RaiseRoom:
    """How many units a container may rise by.

    Attributes:
        taken: those that an earlier raise of it took.
        free: those that it may take in addition.
    """

    taken: RaiseUnits = RaiseUnits()
    free: RaiseUnits = RaiseUnits()

    def granted(self, needed: RaiseUnits) -> RaiseUnits:
        """Returns what a raise gets: each half whole, or what it has already."""
        return RaiseUnits(
            _granted(needed.core, self.taken.core, self.free.core),
            _granted(needed.memory, self.taken.memory, self.free.memory),
        )


def _granted(needed: int, taken: int, free: int) -> int:
    return needed if needed <= taken + free else min(needed, taken)


def taken_by(allocation: Allocation) -> RaiseRoom:
    """Returns the room that an allocation has already, without any more."""
    core, memory = (len(_taken(allocation, half)) for half in Half)
    return RaiseRoom(RaiseUnits(core, memory))


def room_on(layout: Layout, book: AllocationBook, allocation: Allocation) -> RaiseRoom:
    """Returns the room that an allocation has with all that is unallocated on its GPU."""
    core, memory = (len(_free(layout, book, allocation, half)) for half in Half)
    return replace(taken_by(allocation), free=RaiseUnits(core, memory))


def with_units(
    layout: Layout, book: AllocationBook, allocation: Allocation, granted: RaiseUnits
) -> Allocation:
    """Returns the allocation with as many raised units as were granted."""
    raised: list[str] = []
    for half, count in zip(Half, (granted.core, granted.memory), strict=True):
        kept = _taken(allocation, half)[:count]
        raised += kept
        if len(kept) < count:
            # From the top: the kubelet is steered to the lowest, so is least likely to offer them.
            raised += _free(layout, book, allocation, half)[len(kept) - count :]
    return replace(allocation, raised=tuple(raised)) if raised or allocation.raised else allocation


def _taken(allocation: Allocation, half: Half) -> tuple[str, ...]:
    return tuple(unit for unit in allocation.raised if half_of(unit) is half)


def _free(layout: Layout, book: AllocationBook, allocation: Allocation, half: Half) -> list[str]:
    shared = layout.find(allocation.uuid)
    if shared is None or shared.replicas or not fits_layout(shared, [allocation]):
        return []  # the GPU is shared in another way by now, or what is free are replicas
    return [unit for unit in unit_names(shared, half) if book.is_free(unit)]
