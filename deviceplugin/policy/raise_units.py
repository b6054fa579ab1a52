"""Takes out of a GPU what a raise uses up, and gives back what it needs no more. Pure.

Each of core and memory fits whole or not at all; where it does not, the holding keeps what an
earlier raise took.
"""

from dataclasses import replace

from deviceplugin.model.allocations import Book, Holding
from deviceplugin.model.units import Half, half_of
from libvgpu.limits import ContainerLimits

from .effective_limits import Room
from .layout import Layout
from .offer import fits_layout, unit_names
from .raise_permission import no_room, raised_by


def room_of(holding: Holding) -> Room:
    """Returns how far a holding may rise by what was taken out for it."""
    core, memory = (_taken(holding, half) for half in Half)
    return Room(len(core), len(memory) * holding.memory_unit_bytes)


def reach_of(layout: Layout, book: Book, holding: Holding) -> Room:
    """Returns how far a holding could rise with what its GPU has unallocated."""
    core, memory = (
        len(_taken(holding, half)) + len(_free(layout, book, holding, half)) for half in Half
    )
    return Room(core, memory * holding.memory_unit_bytes)


def fit_raise(
    layout: Layout, book: Book, holding: Holding, asked: ContainerLimits, wanted: ContainerLimits
) -> tuple[Holding, str | None]:
    """Returns the holding with the units that ``wanted`` uses up, and why it has not all of them.

    Args:
        wanted: what `limits.effective_limits` says with `limits.PLENTY` of room.
    """
    needs = raised_by(asked, wanted, holding.memory_unit_bytes)
    if not any(needs):  # as nearly always
        return replace(holding, raised=()) if holding.raised else holding, None
    raised: list[str] = []
    for half, needed in zip(Half, needs, strict=True):
        kept, free = _taken(holding, half)[:needed], _free(layout, book, holding, half)
        more = needed - len(kept)
        raised += kept
        if 0 < more <= len(free):
            # From the top: the kubelet is steered to the lowest, so is least likely to offer them.
            raised += free[-more:]
    problem = no_room(asked, wanted, reach_of(layout, book, holding), holding.described())
    return replace(holding, raised=tuple(raised)), problem


def _taken(holding: Holding, half: Half) -> tuple[str, ...]:
    return tuple(unit for unit in holding.raised if half_of(unit) is half)


def _free(layout: Layout, book: Book, holding: Holding, half: Half) -> list[str]:
    shared = layout.find(holding.uuid)
    if shared is None or not fits_layout(shared, [holding]):
        return []  # the GPU is shared in another way by now
    return [unit for unit in unit_names(shared, half) if book.is_free(unit)]
