"""The layout in force: what the config wants, as far as slices that live allow it. Pure.

A GPU keeps the family, the concurrency and the memory unit of its slices until the last of them has
ended; then it is shared as the config says, which all others are at once. Until then it *drains*:
what containers hold stays listed and healthy, and nothing of it is offered. So a memory unit's name
means the same number of bytes for as long as anybody holds one of that GPU, and families may have
GPUs of different units meanwhile. The same holds for devices that are given whole or as replicas:
one that a container holds in another way than the config wants now is offered in no way until then.

It depends on nothing but config, GPUs and allocations, so an agent that was restarted in the midst
of it computes the same. `NodeState` keeps the result and has it computed again when one of them
changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.fractional import LoneHalves, Placement
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.held_devices import Held
from deviceplugin.model.units import Half
from deviceplugin.model.whole_devices import ReplicaKind
from libvgpu.limits import ComputeMode, Family
from libvgpu.sizes import format_size

from .device_resources import DeviceResource, OfferedDevice, device_of, place_of
from .layout import Layout, SharedGpu, all_devices
from .offer import fits_layout, unit_names

_NOTHING_HELD: Held = {}


def in_force(
    wanted: Layout, gpus: Iterable[Gpu], book: AllocationBook, held: Held = _NOTHING_HELD
) -> Layout:
    """Returns how each GPU and MIG device is given now.

    Args:
        wanted: what the config says.
        gpus: those of the node, shared or not.
        book: whose slices are where.
        held: who has devices whole or as replicas.
    """
    devices = all_devices(gpus)
    others = _held_otherwise(wanted, held)
    shared = []
    for gpu in devices:
        allocations = book.on_gpu(gpu.uuid)
        if allocations or gpu.uuid not in others:
            shared.append(_now(wanted.find(gpu.uuid), gpu, allocations))
    found = sorted((each for each in shared if each is not None), key=lambda s: place_of(s.gpu))
    carrying = {each.gpu.uuid for each in found if not each.replicas}
    return replace(
        wanted,
        gpus=tuple(found),
        resources=_resources(wanted, devices, others, carrying),
    )


def _held_otherwise(wanted: Layout, held: Held) -> dict[str, dict[str, list[str]]]:
    """Returns, for each device that a container has in a way that is not wanted any more, all that
    is held of it: ids by resource.
    """
    found: dict[str, dict[str, list[str]]] = {}
    differs = set()
    for name, device_id in held:
        uuid = device_of(device_id)
        found.setdefault(uuid, {}).setdefault(name, []).append(device_id)
        resource = wanted.resource(name)
        if resource is None or resource.device_of(device_id) is None:
            differs.add(uuid)
    return {uuid: by_name for uuid, by_name in found.items() if uuid in differs}


def _resources(
    wanted: Layout,
    devices: Iterable[Gpu],
    others: Mapping[str, Mapping[str, list[str]]],
    carrying: Set[str],
) -> tuple[DeviceResource, ...]:
    """Returns the resources of whole devices, without what is not to be offered yet."""
    by_name = {each.name: each for each in wanted.resources}
    left = {
        name: [
            d for d in resource.devices if d.gpu.uuid not in carrying and d.gpu.uuid not in others
        ]
        for name, resource in by_name.items()
    }
    for gpu in devices:
        for name, ids in others.get(gpu.uuid, {}).items():
            left.setdefault(name, []).append(OfferedDevice(gpu, tuple(sorted(ids)), drains=True))
    return tuple(
        replace(
            by_name.get(name) or DeviceResource(name, name.rpartition("/")[2], ()),
            devices=tuple(sorted(offered, key=lambda d: place_of(d.gpu))),
        )
        for name, offered in left.items()
        if offered
    )


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
        replicas=gpu.memory_bytes // newest.memory_unit_bytes if newest.replicas else 0,
        lone_halves=wanted.lone_halves if wanted else LoneHalves.ALLOW,
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
    before: Layout, after: Layout, wanted: Layout, book: AllocationBook, held: Held = _NOTHING_HELD
) -> Iterator[SharingChange]:
    """Yields what differs between two layouts in force, device by device."""
    for uuid in dict.fromkeys((*_uuids(before), *_uuids(after))):
        old, new = _given(before, uuid), _given(after, uuid)
        if old != new:
            drains = new is not None and new.drains
            then = shared_as(wanted, uuid) if drains else ""
            holders = _holders(uuid, book, held)
            yield SharingChange(uuid, drains, holders, shared_as(after, uuid), then)


def draining(
    layout: Layout, wanted: Layout, book: AllocationBook, held: Held = _NOTHING_HELD
) -> Mapping[str, str]:
    """Returns of each device that drains what it waits for, as a phrase."""
    return {
        uuid: (
            f"{shared_as(layout, uuid)} until {_holders(uuid, book, held)} slices have ended, "
            f"then {shared_as(wanted, uuid)}"
        )
        for uuid in _uuids(layout)
        if (given := _given(layout, uuid)) is not None and given.drains
    }


def _uuids(layout: Layout) -> Iterator[str]:
    yield from (shared.gpu.uuid for shared in layout.gpus)
    yield from (device.gpu.uuid for each in layout.resources for device in each.devices)


def _given(layout: Layout, uuid: str) -> SharedGpu | OfferedDevice | None:
    shared, resource = layout.find(uuid), layout.resource_of(uuid)
    if shared is not None or resource is None:
        return shared
    return next(device for device in resource.devices if device.gpu.uuid == uuid)


def _holders(uuid: str, book: AllocationBook, held: Held) -> int:
    return len(book.on_gpu(uuid)) + sum(device_of(device_id) == uuid for _, device_id in held)


def newly_offered(before: Layout, after: Layout) -> set[str]:
    """Returns the units that ``after`` offers and ``before`` did not, whoever holds some."""

    def offered(layout: Layout) -> set[SharedGpu]:
        return {
            replace(
                shared,
                compute=ComputeMode.STRICT,
                placement=Placement.BINPACK,
                concurrency=Concurrency.TIME_SLICES,
                lone_halves=LoneHalves.ALLOW,
            )
            for shared in layout.gpus
            if not shared.drains
        }

    new = offered(after) - offered(before)
    return {unit for shared in new for half in Half for unit in unit_names(shared, half)}


def shared_as(layout: Layout, uuid: str) -> str:
    """Returns how a device is given, as a phrase."""
    shared, resource = layout.find(uuid), layout.resource_of(uuid)
    if shared is None and resource is None:
        return "not shared"
    if resource is not None and (shared is None or shared.replicas):
        device = next(each for each in resource.devices if each.gpu.uuid == uuid)
        many = len(device.ids) > 1 or device.ids[0] != uuid
        under = " under MPS" if resource.kind is ReplicaKind.MPS else ""
        return f"{'in replicas' if many else 'whole'} as {resource.name}{under}"
    assert shared is not None
    unit = format_size(shared.memory_unit_bytes)
    compute = f" {shared.compute.word}" if shared.family is Family.VGPU else ""
    together = " under one MPS server" if shared.concurrency is Concurrency.MPS else ""
    return f"{shared.family.name.lower()}{compute}{together} by units of {unit}"
