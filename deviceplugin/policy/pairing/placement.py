"""On which GPU a container's units had best be: pure policy.

A fraction goes to one GPU. Where both amounts are known (`Need`), it is one of those that hold
both: ``binpack`` takes the one that has the least left afterwards, ``spread`` the one that has the
most (`left`, `order_key`; who schedules pods goes by the same order).

Where the amount of the other half is not known, or no GPU holds what is expected, those with the
most of the other half free come first. So a pair that any single GPU can hold is never refused,
whichever half is asked for first. Of equal ones, those come first where no container that seems to
have ended has to be waited for, should the other half not be asked for; ``binpack`` then takes the
fullest of them, ``spread`` the emptiest.

More than one GPU's compute means whole GPUs: they are all free, and as close to each other as the
free ones allow (`topology.closest`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.model.fractional import Placement
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half
from deviceplugin.policy.devices.device_choice import Closest
from deviceplugin.policy.devices.offer import FreeUnits, gpu_units
from libvgpu.errors import AllocationRefused

from .implicit_units import default_memory

#: Parts of a GPU are compared as whole numbers of steps: so many that those of GPUs with up to
#: 20 000 memory units are told apart, and equal ones are equal.
_STEPS = 1 << 40


def left(core_free: int, memory_free: int, memory_units: int, core: int, memory: int) -> int:
    """Returns what is left of a GPU after a container was put there: its parts of core and memory,
    added up, in steps of 2^-40 GPU; an exact order also between GPUs of different memory.

    Args:
        core_free: free core units before, of 100.
        memory_free: free memory units before.
        memory_units: that the GPU has in all.
        core: what the container takes, 0 for memory alone.
        memory: what it takes, `default_memory` for core alone.
    """
    core_left, memory_left = core_free - core, memory_free - memory
    parts = core_left * memory_units + memory_left * CORE_UNITS_PER_GPU
    return parts * _STEPS // (CORE_UNITS_PER_GPU * memory_units)


def order_key(placement: Placement, left_over: int, index: int) -> tuple[int, int]:
    """Returns by what the GPUs that hold a container are ordered, the best first.

    Args:
        left_over: see `left`.
        index: of the GPU.
    """
    return (left_over if placement is Placement.BINPACK else -left_over), index


@dataclass(frozen=True, slots=True)
class Need:
    """What a GPU must have free for a container, both halves.

    Attributes:
        core: units.
        memory: units that are asked for.
        default_core: core units that come with the same percentage of memory, without being asked
            for it; 0 where none do. Where both are given, they are of containers one after the
            other.
    """

    core: int
    memory: int
    default_core: int = 0

    def of(self, half: Half) -> int:
        """Returns how many units of a half are asked for."""
        return self.core if half is Half.CORE else self.memory

    def memory_on(self, memory_units: int) -> int:
        """Returns how many memory units that is on a GPU that has so many."""
        if not self.default_core:
            return self.memory
        return max(self.memory, default_memory(memory_units, self.default_core))


def one_gpu(
    rooms: Mapping[str, FreeUnits],
    half: Half,
    count: int,
    placement: Placement,
    what: str,
    need: Need | None = None,
    chosen: str = "",
) -> str:
    """Returns the GPU for a fraction.

    Args:
        rooms: of the GPUs that may be taken.
        count: units of ``half`` asked for.
        what: the request, as the message names it.
        need: what the container takes in all, None where it is not known.
        chosen: a GPU that is taken before all others if it holds that.

    Raises:
        AllocationRefused: no single GPU has room, with the numbers.
    """
    fitting = [room for room in rooms.values() if room.count >= count]
    if not fitting:
        numbers = ", ".join(f"{uuid} has {room.count}" for uuid, room in rooms.items()) or "none"
        raise AllocationRefused(f"{what} is not free on any single GPU: {numbers}")
    holding = fitting if need is None else [r for r in fitting if _holds(r, half, need)]
    if any(room.shared.gpu.uuid == chosen for room in holding):
        return chosen

    def order(room: FreeUnits) -> tuple[int, int, int, int]:
        fullness = room.count if placement is Placement.BINPACK else -room.count
        return -room.other_free, -room.other_certain, fullness, room.shared.gpu.index

    def order_of_known(room: FreeUnits, need: Need) -> tuple[int, int, int]:
        units = room.shared.memory_units
        core_free, memory_free = _by_half(half, room.count, room.other_free)
        memory = need.memory_on(units)
        # A default takes what is free on the book, and else waits until ended containers are gone.
        waits = bool(need.default_core) and half is Half.CORE and room.other_certain < memory
        left_over = left(core_free, memory_free, units, need.core, memory)
        return int(waits), *order_key(placement, left_over, room.shared.gpu.index)

    if need is not None and holding:
        return min(holding, key=lambda room: order_of_known(room, need)).shared.gpu.uuid
    return min(fitting, key=order).shared.gpu.uuid


def _holds(room: FreeUnits, half: Half, need: Need) -> bool:
    core_free, memory_free = _by_half(half, room.count, room.other_free)
    units = room.shared.memory_units
    # Who follows and gets several whole GPUs needs all of this one, and no more of it.
    core, memory = min(need.core, CORE_UNITS_PER_GPU), min(need.memory_on(units), units)
    return core_free >= core and memory_free >= memory


def _by_half(half: Half, own: int, other: int) -> tuple[int, int]:
    """Returns amounts of the half asked for and of the other one as those of core and memory."""
    return (own, other) if half is Half.CORE else (other, own)


def whole_gpus(
    rooms: Mapping[str, FreeUnits],
    half: Half,
    count: int,
    required: Sequence[str],
    closest: Closest,
    what: str,
    chosen: Sequence[str] = (),
) -> tuple[str, ...]:
    """Returns the GPUs for a request of more than one.

    Args:
        count: of core a multiple of 100; of memory all units of the GPUs.
        required: GPUs of which the container has units already.
        closest: see `Closest`.
        chosen: GPUs that are taken before all others if they are free and just so many.

    Raises:
        AllocationRefused: the number is none of whole GPUs, or too few are free.
    """
    if chosen and are_whole(rooms, half, count, required, chosen):
        return tuple(chosen)
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
        free = [uuid for uuid in uuids if _is_whole(rooms[uuid], half, uuid in required)]
        if count % size == 0 and wanted <= len(free) and set(required) <= set(free):
            return tuple(closest(free, wanted, required))
    free_count = sum(room.is_empty for room in rooms.values())
    raise AllocationRefused(
        f"{what} means whole GPUs, of which {free_count} of {len(rooms)} are free"
    )


def are_whole(
    rooms: Mapping[str, FreeUnits],
    half: Half,
    count: int,
    required: Sequence[str],
    chosen: Sequence[str],
) -> bool:
    """Returns whether chosen GPUs are several free ones that together have ``count`` units.

    Args:
        required: GPUs of which the container has units already.
    """
    return (
        1 < len(chosen) == len(set(chosen))
        and set(required) <= set(chosen)
        and all(u in rooms and _is_whole(rooms[u], half, u in required) for u in chosen)
        and sum(rooms[uuid].count for uuid in chosen) == count
    )


def _is_whole(room: FreeUnits, half: Half, is_required: bool) -> bool:
    return room.count == gpu_units(room.shared, half) and (room.is_empty or is_required)
