"""The layout in force: what the config wants, as far as slices that live allow it. Pure.

A GPU keeps the family, the concurrency and the memory unit of its slices until the last of them has
ended; then it is shared as the config says, which all others are at once. Until then it *drains*:
what containers hold stays listed and healthy, and nothing of it is offered. So a memory unit's name
means the same number of bytes for as long as anybody holds one of that GPU, and families may have
GPUs of different units meanwhile.

It depends on nothing but config, GPUs and allocations, so an agent that was restarted in the midst
of it computes the same. `NodeState` keeps the result and has it computed again when one of them
changed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from deviceplugin.config.loading import Placement
from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import Half
from libvgpu.limits import ComputeMode, Family
from libvgpu.sizes import format_size

from .layout import Layout, SharedGpu
from .offer import fits_layout, unit_names


def in_force(wanted: Layout, gpus: Iterable[Gpu], book: AllocationBook) -> Layout:
    """Returns how each GPU is shared now.

    Args:
        wanted: what the config says.
        gpus: those of the node, shared or not.
        book: whose slices are where.
    """
    shared = (_now(wanted.find(gpu.uuid), gpu, book.on_gpu(gpu.uuid)) for gpu in gpus)
    found = sorted((each for each in shared if each is not None), key=lambda s: s.gpu.index)
    return replace(wanted, gpus=tuple(found))


def _now(wanted: SharedGpu | None, gpu: Gpu, allocations: list[Allocation]) -> SharedGpu | None:
    if not allocations or (wanted is not None and fits_layout(wanted, allocations)):
        return wanted
    # All are alike, unless a kubelet's record that was taken over names pods that have ended, too.
    newest = max(allocations, key=lambda h: (h.changed_at, h.allocation_id))
    compute = wanted.compute if wanted else ComputeMode.STRICT
    return SharedGpu(
        gpu,
        newest.family,
        newest.memory_unit_bytes,
        newest.compute if newest.compute is not None else compute,
        wanted.placement if wanted else Placement.BINPACK,
        drains=True,
        concurrency=newest.concurrency,
    )


@dataclass(frozen=True, slots=True)
class SharingChange:
    """What came into force with one GPU.

    Attributes:
        slices: how many it waits for where it drains.
        now: how it is shared, as a phrase.
        then: how it will be where it drains.
    """

    uuid: str
    drains: bool
    slices: int
    now: str
    then: str = ""


def changes(
    before: Layout, after: Layout, wanted: Layout, book: AllocationBook
) -> Iterator[SharingChange]:
    """Yields what differs between two layouts in force, GPU by GPU."""
    uuids = dict.fromkeys(shared.gpu.uuid for shared in (*before.gpus, *after.gpus))
    for uuid in uuids:
        old, new = before.find(uuid), after.find(uuid)
        if old != new:
            drains = new is not None and new.drains
            slices = len(book.on_gpu(uuid))
            then = shared_as(wanted.find(uuid)) if drains else ""
            yield SharingChange(uuid, drains, slices, shared_as(new), then)


def draining(layout: Layout, wanted: Layout, book: AllocationBook) -> Mapping[str, str]:
    """Returns of each GPU that drains what it waits for, as a phrase."""
    return {
        shared.gpu.uuid: (
            f"{shared_as(shared)} until {len(book.on_gpu(shared.gpu.uuid))} slices have ended, "
            f"then {shared_as(wanted.find(shared.gpu.uuid))}"
        )
        for shared in layout.gpus
        if shared.drains
    }


def newly_offered(before: Layout, after: Layout) -> set[str]:
    """Returns the units that ``after`` offers and ``before`` did not, whoever holds some."""

    def offered(layout: Layout) -> set[SharedGpu]:
        return {
            replace(
                shared,
                compute=ComputeMode.STRICT,
                placement=Placement.BINPACK,
                concurrency=Concurrency.TIME_SLICES,
            )
            for shared in layout.gpus
            if not shared.drains
        }

    new = offered(after) - offered(before)
    return {unit for shared in new for half in Half for unit in unit_names(shared, half)}


def shared_as(shared: SharedGpu | None) -> str:
    """Returns how a GPU is shared, as a phrase."""
    if shared is None:
        return "not shared"
    unit = format_size(shared.memory_unit_bytes)
    compute = f" {shared.compute.name.lower()}" if shared.family is Family.VGPU else ""
    together = " under one MPS server" if shared.concurrency is Concurrency.MPS else ""
    return f"{shared.family.name.lower()}{compute}{together} by units of {unit}"
