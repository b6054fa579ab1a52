"""How the GPUs are shared and what is free of them: views of layout and book. Pure."""

from collections.abc import Container

from deviceplugin.model.allocations import AllocationBook
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import Half
from deviceplugin.policy.devices.device_resources import is_well
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.devices.offer import unit_names, withdrawn

from .offered import FreeSlice, SharedResource, SharingStrategy


def shared_resources(layout: Layout) -> tuple[SharedResource, ...]:
    """Returns how GPUs and MIG devices are given whole or in replicas.

    A resource in which only some devices have replicas is told as two.
    """
    found: list[SharedResource] = []
    for resource in layout.resources:
        by_count: dict[int, set[str]] = {}
        for device in resource.devices:
            by_count.setdefault(len(device.ids), set()).add(device.gpu.uuid)
        for count, uuids in by_count.items():
            kind = resource.kind if count > 1 else None
            strategy = SharingStrategy(kind) if kind is not None else SharingStrategy.NONE
            found.append(SharedResource(frozenset(uuids), count, strategy, resource.is_renamed))
    return tuple(found)


def free_slices(
    layout: Layout, book: AllocationBook, unhealthy: Container[str] = ()
) -> tuple[FreeSlice, ...]:
    """Returns what is free of each GPU; nothing of one that is unhealthy or drains.

    Args:
        unhealthy: UUIDs of GPUs.
    """
    blocked = withdrawn(layout, book)

    def free(shared: SharedGpu, half: Half) -> int:
        if not is_well(shared.gpu, unhealthy):
            return 0
        return len(book.free(frozenset(unit_names(shared, half))) - blocked)

    return tuple(
        FreeSlice(
            uuid=shared.gpu.uuid,
            place=place_of(shared.gpu),
            family=shared.family.name.lower(),
            strategy=SharingStrategy.MPS if shared.served_by_mps else SharingStrategy.TIME_SLICING,
            core_percent=free(shared, Half.CORE),
            memory_bytes=free(shared, Half.MEMORY) * shared.memory_unit_bytes,
            total_bytes=shared.gpu.memory_bytes,
        )
        for shared in layout.gpus
        if not shared.replicas
    )


def place_of(gpu: Gpu) -> str:
    """Returns which GPU it is, in the name of a label: ``0``, and ``0.3`` for a MIG device."""
    return str(gpu.index) if gpu.mig is None else f"{gpu.index}.{gpu.mig.number}"
