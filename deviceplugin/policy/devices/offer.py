"""What the node offers to the kubelet, and what of it is free: pure views of layout and book."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, gpu_of, unit_name
from libvgpu.limits import Family

from .layout import Layout, SharedGpu


def gpu_units(shared: SharedGpu, half: Half) -> int:
    """Returns how many units of ``half`` one GPU has."""
    return CORE_UNITS_PER_GPU if half is Half.CORE else shared.memory_units


def unit_names(shared: SharedGpu, half: Half) -> tuple[str, ...]:
    """Returns all units of ``half`` on one GPU, by number."""
    return _unit_names(shared.gpu.uuid, half, gpu_units(shared, half))


@lru_cache(256)  # two a GPU: made once, asked for in every call
def _unit_names(uuid: str, half: Half, count: int) -> tuple[str, ...]:
    return tuple(unit_name(uuid, half, n) for n in range(count))


@lru_cache(256)
def _unit_set(uuid: str, half: Half, count: int) -> frozenset[str]:
    return frozenset(_unit_names(uuid, half, count))


def advertised(layout: Layout, family: Family, half: Half) -> list[tuple[str, SharedGpu]]:
    """Returns every unit of one resource with its GPU."""
    return [
        (unit, shared) for shared in layout.of_family(family) for unit in unit_names(shared, half)
    ]


def withdrawn(layout: Layout, book: AllocationBook, joined: Container[str] = ()) -> set[str]:
    """Returns the units to report Unhealthy although their GPU is well.

    Those that a default, a whole GPU or a raised limit uses up, and the free ones of a GPU that
    drains.

    Args:
        joined: GPUs of a container that has one half there already: it may have the other, too.
    """
    units = book.withdrawn()
    for shared in layout.gpus:
        if not shared.drains or shared.gpu.uuid in joined:
            continue
        for half in Half:
            units.update(unit for unit in unit_names(shared, half) if book.is_free(unit))
    return units


def fits_layout(shared: SharedGpu, allocations: Iterable[Allocation]) -> bool:
    """Returns whether slices are of the family, concurrency and unit that their GPU has now."""
    return all(
        h.family is shared.family
        and h.concurrency is shared.concurrency
        and h.memory_unit_bytes == shared.memory_unit_bytes
        and bool(h.replicas) == bool(shared.replicas)
        for h in allocations
    )


@dataclass(frozen=True, slots=True)
class FreeUnits:
    """What is free on one GPU for one request.

    Attributes:
        units: of the half that is asked for, by number, without those the container has already.
        required: how many it has already there.
        other_free: units of the other half that nobody has, those of containers that seem to have
            ended included: the kubelet offers them when it asks for that half.
        other_certain: those of them that nobody has on the book: what a default may take at once.
        is_empty: nobody has anything of it, by the same measure as `other_free`.
    """

    shared: SharedGpu
    units: tuple[str, ...]
    required: int
    other_free: int
    other_certain: int
    is_empty: bool

    @property
    def count(self) -> int:
        """Units of the half that the container could have there."""
        return len(self.units) + self.required


def rooms(
    shared_gpus: Iterable[SharedGpu],
    book: AllocationBook,
    half: Half,
    available: Iterable[str],
    must_include: Sequence[str],
    blocked: set[str],
) -> dict[str, FreeUnits]:
    """Returns the room on each GPU, by UUID.

    Args:
        available: what the kubelet believes free.
        must_include: what the container has already.
        blocked: see `withdrawn`.
    """
    offered = frozenset(available)
    required = frozenset(must_include)
    found = {}
    for shared in shared_gpus:
        uuid = shared.gpu.uuid
        names = unit_names(shared, half)
        all_units, all_others = (
            _unit_set(uuid, each, gpu_units(shared, each)) for each in (half, half.other)
        )
        free = book.free(all_units & offered) - required - blocked
        others = book.seem_free(all_others, uuid)
        found[uuid] = FreeUnits(
            shared,
            tuple(unit for unit in names if unit in free),
            sum(gpu_of(unit) == uuid for unit in required),
            len(others - blocked),
            len(book.free(all_others) - blocked),
            all(allocation.missing_since for allocation in book.on_gpu(uuid)),
        )
    return found
