"""On which GPU a container's units had best be: pure policy.

A fraction goes to one GPU. How much of the other half the container will ask for is not known:
among the GPUs with room, those with the most of the other half free come first. So a pair that any
single GPU can hold is never refused, whichever half is asked for first. Of equal ones, those come
first where no container that seems to have ended has to be waited for, should the other half not be
asked for; ``binpack`` then takes the fullest of them, ``spread`` the emptiest.

More than one GPU's compute means whole GPUs: they are all free, and as close to each other as the
free ones allow (`topology.closest`).
"""

from collections.abc import Callable, Mapping, Sequence

from deviceplugin.config.fractional import Placement
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half
from libvgpu.errors import AllocationRefused

from .offer import FreeUnits, gpu_units

#: The ``count`` GPUs of the given ones that lie closest together, with those of the third argument.
Closest = Callable[[Sequence[str], int, Sequence[str]], Sequence[str]]


def one_gpu(
    rooms: Mapping[str, FreeUnits],
    count: int,
    placement: Placement,
    what: str,
) -> str:
    """Returns the GPU for a fraction.

    Args:
        rooms: of the GPUs that may be taken.
        count: units asked for.
        what: the request, as the message names it.

    Raises:
        AllocationRefused: no single GPU has room, with the numbers.
    """
    fitting = [room for room in rooms.values() if room.count >= count]
    if not fitting:
        numbers = ", ".join(f"{uuid} has {room.count}" for uuid, room in rooms.items()) or "none"
        raise AllocationRefused(f"{what} is not free on any single GPU: {numbers}")

    def order(room: FreeUnits) -> tuple[int, int, int, int]:
        fullness = room.count if placement is Placement.BINPACK else -room.count
        return -room.other_free, -room.other_certain, fullness, room.shared.gpu.index

    return min(fitting, key=order).shared.gpu.uuid


def whole_gpus(
    rooms: Mapping[str, FreeUnits],
    half: Half,
    count: int,
    required: Sequence[str],
    closest: Closest,
    what: str,
) -> tuple[str, ...]:
    """Returns the GPUs for a request of more than one.

    Args:
        count: of core a multiple of 100; of memory all units of the GPUs.
        required: GPUs of which the container has units already.
        closest: see `Closest`.

    Raises:
        AllocationRefused: the number is none of whole GPUs, or too few are free.
    """
    by_size: dict[int, list[str]] = {}
    for uuid, room in rooms.items():
        by_size.setdefault(gpu_units(room.shared, half), []).append(uuid)
    if half is Half.CORE:
        if count % CORE_UNITS_PER_GPU:
            raise AllocationRefused(
                f"{what} is more than one GPU and not a multiple of {CORE_UNITS_PER_GPU}; "
                f"allowed are 1 to {CORE_UNITS_PER_GPU} and whole GPUs"
            )
    elif not any(count % size == 0 for size in by_size):
        sizes = " or ".join(str(size) for size in sorted(by_size)) or "none"
        raise AllocationRefused(
            f"{what} is more than one GPU has and not all of several; a GPU has {sizes}"
        )
    for size, uuids in sorted(by_size.items()):
        wanted = count // size
        free = [
            uuid
            for uuid in uuids
            if rooms[uuid].count == size and (rooms[uuid].is_empty or uuid in required)
        ]
        if count % size == 0 and wanted <= len(free) and set(required) <= set(free):
            return tuple(closest(free, wanted, required))
    free_count = sum(room.is_empty for room in rooms.values())
    raise AllocationRefused(
        f"{what} means whole GPUs, of which {free_count} of {len(rooms)} are free"
    )
