"""GPUs that are shared in units, and what containers hold of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import Half, unit_name
from deviceplugin.policy.devices import offer
from deviceplugin.policy.devices.device_choice import Closest, first_by_index
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.pairing.preference import UnitRequest, prefer
from libvgpu.limits import ComputeMode, Family

GIB = 1 << 30
NOW = 1000.0
NONE = range(0)


def names(gpu: int | str, half: Half, numbers: Iterable[int]) -> tuple[str, ...]:
    """Returns units of a GPU, which is given by its number or its UUID."""
    uuid = gpu if isinstance(gpu, str) else f"GPU-{gpu}"
    return tuple(unit_name(uuid, half, number) for number in numbers)


def shared_gpu(
    number: int,
    family: Family = Family.VGPU,
    unit_bytes: int = GIB,
    gib: int = 16,
    major: int | None = None,
    **more: object,
) -> SharedGpu:
    """Returns GPU-0, GPU-1, …, shared in units of one GiB."""
    gpu = Gpu(number, f"GPU-{number}", "test", gib * GIB, compute_major=major)
    shared = SharedGpu(gpu, family, unit_bytes, ComputeMode.STRICT)
    return replace(shared, **more)  # type: ignore[arg-type]


def layout_of(*gib: int, **more: object) -> Layout:
    """Returns a node whose GPUs have so many GiB."""
    gpus = (shared_gpu(number, gib=size, **more) for number, size in enumerate(gib))  # type: ignore[arg-type]
    return Layout("nvidia.com", tuple(gpus))


def holding(
    name: str,
    core: range = NONE,
    memory: range = NONE,
    *uuids: str,
    family: Family = Family.VGPU,
    unit_bytes: int = GIB,
    **more: object,
) -> Allocation:
    """Returns what a container has of each of its GPUs, or of GPU-0."""
    uuids = uuids or ("GPU-0",)
    held = (
        tuple(unit for uuid in uuids for unit in names(uuid, half, numbers))
        for half, numbers in ((Half.CORE, core), (Half.MEMORY, memory))
    )
    return Allocation(name, family, uuids[0], unit_bytes, *held, **more)  # type: ignore[arg-type]


def free_units(layout: Layout, book: AllocationBook, half: Half) -> list[str]:
    """Returns what a kubelet that knows what the book knows would offer."""
    gone = offer.withdrawn(layout, book)
    return [
        unit
        for unit, _ in offer.advertised(layout, layout.gpus[0].family, half)
        if book.is_free(unit) and unit not in gone
    ]


def preferred(
    layout: Layout,
    book: AllocationBook,
    half: Half,
    count: int,
    available: Sequence[str] | None = None,
    closest: Closest = first_by_index,
    now_s: float = NOW,
    had: Sequence[str] = (),
    **more: object,
) -> list[str]:
    """Returns which units the agent prefers, of those that are free unless others are given."""
    if available is None:
        available = [*free_units(layout, book, half), *had]
    family = layout.gpus[0].family
    request = UnitRequest(family, half, available, had, count, **more)  # type: ignore[arg-type]
    return prefer(layout, book, request, now_s, closest)
