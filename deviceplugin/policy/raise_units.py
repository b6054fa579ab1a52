"""Takes out of a GPU what a raise uses up, and gives back what it needs no more. Pure.

Each of core and memory fits whole or not at all; where it does not, the allocation keeps what an
earlier raise took.
"""

from dataclasses import replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import Half, half_of
from libvgpu.limits import ContainerLimits

from .effective_limits import RaiseRoom
from .layout import Layout
from .offer import fits_layout, unit_names
from .raise_permission import no_room, raised_by


def room_of(allocation: Allocation) -> RaiseRoom:
    """Returns how far an allocation may rise by what was taken out for it."""
    core, memory = (_taken(allocation, half) for half in Half)
    return RaiseRoom(len(core), len(memory) * allocation.memory_unit_bytes)


def reach_of(layout: Layout, book: AllocationBook, allocation: Allocation) -> RaiseRoom:
    """Returns how far an allocation could rise with what its GPU has unallocated."""
    core, memory = (
        len(_taken(allocation, half)) + len(_free(layout, book, allocation, half)) for half in Half
    )
    return RaiseRoom(core, memory * allocation.memory_unit_bytes)


def fit_raise(
    layout: Layout,
    book: AllocationBook,
    allocation: Allocation,
    asked: ContainerLimits,
    wanted: ContainerLimits,
) -> tuple[Allocation, str | None]:
    """Returns the allocation with the units that ``wanted`` uses up, and why not all of them.

    Args:
        wanted: what `limits.effective_limits` says with `limits.PLENTY` of room.
    """
    needs = raised_by(asked, wanted, allocation.memory_unit_bytes)
    if not any(needs):  # as nearly always
        return replace(allocation, raised=()) if allocation.raised else allocation, None
    raised: list[str] = []
    for half, needed in zip(Half, needs, strict=True):
        kept, free = _taken(allocation, half)[:needed], _free(layout, book, allocation, half)
        more = needed - len(kept)
        raised += kept
        if 0 < more <= len(free):
            # From the top: the kubelet is steered to the lowest, so is least likely to offer them.
            raised += free[-more:]
    problem = no_room(asked, wanted, reach_of(layout, book, allocation), allocation.described())
    return replace(allocation, raised=tuple(raised)), problem


def _taken(allocation: Allocation, half: Half) -> tuple[str, ...]:
    return tuple(unit for unit in allocation.raised if half_of(unit) is half)


def _free(layout: Layout, book: AllocationBook, allocation: Allocation, half: Half) -> list[str]:
    shared = layout.find(allocation.uuid)
    if shared is None or not fits_layout(shared, [allocation]):
        return []  # the GPU is shared in another way by now
    return [unit for unit in unit_names(shared, half) if book.is_free(unit)]
