"""Which units a container gets: pure policy over the layout and the book.

The kubelet allocates core and memory of one container independently, in random order, without
saying for whom. It admits serially, which decides the plain case:

1. The first `Allocate` of a container *opens* a holding on the GPU its units are of.
2. While a holding of the family is open, the other half's `GetPreferredAllocation` is steered to
   that GPU, and its `Allocate` joins it. Another GPU there would split the pair: refused.
3. A second `Allocate` of the *same* half, a refusal, `JOIN_WINDOW_S` or the container's start
   settle the holding: what comes next belongs to another container.

A container that asked for one half only is completed by `complete_start` when it starts. Where two
containers still ended in one holding, podresources shows it and their start is refused in words.

Everything takes the book and the time as arguments and returns new values or raises
`AllocationRefused`; the caller enters them into the book under its lock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, Family
from libvgpu.sizes import format_size

from .holdings import Book, Holding
from .layout import Layout, SharedGpu
from .units import CORE_UNITS_PER_GPU, Half, only_gpu, resource_name, shown, unit_name, unit_number

#: The kubelet asks for the halves of one container within milliseconds of each other.
JOIN_WINDOW_S = 5.0
#: Of a GPU that the config does not share any more.
DEFAULT_COMPUTE = ComputeMode.STRICT


def gpu_units(shared: SharedGpu, half: Half) -> int:
    """Returns how many units of ``half`` one GPU has."""
    return CORE_UNITS_PER_GPU if half is Half.CORE else shared.memory_units


def advertised(layout: Layout, family: Family, half: Half) -> list[tuple[str, SharedGpu]]:
    """Returns every unit of one resource with its GPU."""
    return [
        (unit_name(shared.gpu.uuid, half, number), shared)
        for shared in layout.of_family(family)
        for number in range(gpu_units(shared, half))
    ]


def withdrawn(layout: Layout, book: Book) -> set[str]:
    """Returns the units to report Unhealthy although their GPU is well.

    Those that a lone half's default uses up, and the free ones of a GPU that still carries slices
    of another family or unit than the config now gives it.
    """
    units = book.withdrawn()
    taken = book.taken()
    for shared in layout.gpus:
        if _fits_layout(shared, book.on_gpu(shared.gpu.uuid)):
            continue
        for half in Half:
            names = (unit_name(shared.gpu.uuid, half, n) for n in range(gpu_units(shared, half)))
            units.update(name for name in names if name not in taken)
    return units


def _fits_layout(shared: SharedGpu, holdings: Iterable[Holding]) -> bool:
    return all(
        h.family is shared.family and h.memory_unit_bytes == shared.memory_unit_bytes
        for h in holdings
    )


def open_holding(book: Book, family: Family, missing: Half, now: float) -> Holding | None:
    """Returns the holding of ``family`` that waits for its ``missing`` half, if there is one."""
    for holding in book.holdings.values():
        if (
            holding.family is family
            and not holding.settled
            and holding.of(missing.other)
            and not holding.of(missing)
            and now - holding.changed_at <= JOIN_WINDOW_S
        ):
            return holding
    return None


def prefer(
    layout: Layout,
    book: Book,
    family: Family,
    half: Half,
    available: Sequence[str],
    must_include: Sequence[str],
    count: int,
    now: float,
) -> list[str]:
    """Returns the ``count`` units the kubelet had best take, all of one GPU.

    Args:
        available: what the kubelet believes free (with ``must_include``).
        must_include: what the container has already.
        count: how many in all.

    Raises:
        AllocationRefused: no single GPU can give them, with the numbers.
    """
    name = resource_name(layout.resource_domain, family, half)
    what = f"{name}: {count}"
    gpus = {g.gpu.uuid: g for g in layout.of_family(family)}
    _check_size(list(gpus.values()), half, count, what)
    if must_include:
        gpus = {u: g for u, g in gpus.items() if u == only_gpu(half, must_include, what)}
    blocked = withdrawn(layout, book)
    required = set(must_include)
    free: dict[str, list[str]] = {uuid: [] for uuid in gpus}
    for unit in available:
        if unit in required or unit in blocked or book.holder(unit) is not None:
            continue
        units = free.get(unit.rpartition("::")[0])
        if units is not None:
            units.append(unit)
    partner = open_holding(book, family, half, now)
    if partner is not None:
        room = len(free.get(partner.uuid, ())) + len(required)
        if partner.uuid not in gpus or room < count:
            raise AllocationRefused(
                f"{what} cannot join {len(partner.of(half.other))} {half.other} of the same "
                f"container on GPU {partner.uuid}: {room} {half} units are free there, and the "
                "two halves of a slice are never split over GPUs"
            )
        chosen = partner.uuid
    else:
        fitting = [uuid for uuid, units in free.items() if len(units) + len(required) >= count]
        if not fitting:
            rooms = ", ".join(f"{u} has {len(free[u]) + len(required)}" for u in free) or "none"
            raise AllocationRefused(f"{what} is not free on any single GPU: {rooms}")
        chosen = min(fitting, key=lambda u: _placement(gpus[u], half, len(free[u]), book, blocked))
    ordered = sorted(free[chosen], key=unit_number)
    return [*must_include, *ordered][:count]


def _check_size(gpus: Sequence[SharedGpu], half: Half, count: int, what: str) -> None:
    most = max((gpu_units(g, half) for g in gpus), default=0)
    if count < 1:
        raise AllocationRefused(f"{what} is nothing; ask for 1 to {most}")
    if count > most:
        reason = (
            "more than one GPU's compute is not served yet"
            if half is Half.CORE
            else f"the largest GPU has {most} units"
        )
        raise AllocationRefused(f"{what} does not fit one GPU: {reason}; allowed are 1 to {most}")


def _placement(
    shared: SharedGpu, half: Half, free: int, book: Book, blocked: set[str]
) -> tuple[int, int, int]:
    """Orders GPUs: most of the other half free; then the fullest that fits; then the index.

    How much of the other half the container will ask for is not known at its first half. With the
    most of it free, a pair that any single GPU can hold is never refused, whichever half is asked
    first; packing tighter needs the pod's spec.
    """
    uuid, other = shared.gpu.uuid, half.other
    names = (unit_name(uuid, other, n) for n in range(gpu_units(shared, other)))
    other_free = sum(1 for unit in names if unit not in blocked and book.holder(unit) is None)
    return -other_free, free, shared.gpu.index


def allocate(
    layout: Layout,
    book: Book,
    family: Family,
    half: Half,
    units: Sequence[str],
    now: float,
    new_id: str,
) -> Holding:
    """Returns the holding that ``units`` open or join; the caller enters it.

    Args:
        units: what the kubelet decided to give.
        now: seconds since the epoch.
        new_id: allocation id for a holding that is opened.

    Raises:
        AllocationRefused: units that do not exist, are held, are spread, or would split a pair.
    """
    name = resource_name(layout.resource_domain, family, half)
    what = f"{name}: {len(units)}"
    gpus = {g.gpu.uuid: g for g in layout.of_family(family)}
    uuid = only_gpu(half, units, what)
    if uuid not in gpus or max(map(unit_number, units)) >= gpu_units(gpus[uuid], half):
        raise AllocationRefused(f"{what} names units that are not offered: {shown(units)}")
    for unit in units:
        holder = book.holder(unit)
        if holder is not None:
            raise AllocationRefused(f"{what}: unit {unit} is held by {holder.described()}")
    if not _fits_layout(gpus[uuid], book.on_gpu(uuid)):
        raise AllocationRefused(
            f"{what}: GPU {uuid} still carries slices of the sharing it had before"
        )
    ordered = tuple(sorted(units, key=unit_number))
    partner = open_holding(book, family, half, now)
    if partner is None:
        fresh = Holding(new_id, family, uuid, gpus[uuid].memory_unit_bytes)
        return fresh.with_half(half, ordered, now)
    if partner.uuid != uuid:
        raise AllocationRefused(
            f"{what} was given on GPU {uuid}, but {len(partner.of(half.other))} {half.other} of "
            f"the same container are on GPU {partner.uuid}; the two halves of a slice are never "
            "split over GPUs"
        )
    return replace(partner.with_half(half, ordered, now), settled=True)


def settle_before(book: Book, family: Family, half: Half) -> list[Holding]:
    """Returns the open holdings that an `Allocate` of ``half`` ends, settled.

    A container is asked for each half once, so the same half again is another container's.
    """
    return [
        replace(h, settled=True)
        for h in book.holdings.values()
        if h.family is family and not h.settled and h.of(half)
    ]


def complete_start(layout: Layout, book: Book, holding: Holding) -> Holding:
    """Returns the holding as its container may start: whole, or a lone half with its default.

    Only core: the same share of the GPU's memory, rounded down to units, at least one; taken from
    free units, which are withdrawn from the kubelet. Only memory would mean what others leave over
    of the compute; nothing can hold a container to that yet, so it is refused, never uncapped.

    Raises:
        AllocationRefused: the default cannot be honoured.
    """
    if holding.whole or holding.borrowed:
        return replace(holding, settled=True)
    core, memory = (resource_name(layout.resource_domain, holding.family, h) for h in Half)
    if not holding.core:
        reason = (
            "MPS reserves no left-over compute"
            if holding.family is Family.MPS
            else "compute that others leave over is not served yet"
        )
        raise AllocationRefused(
            f"{memory}: {len(holding.memory)} without {core} cannot be honoured, since {reason}; "
            f"ask for {core} too"
        )
    shared = next((g for g in layout.gpus if g.gpu.uuid == holding.uuid), None)
    if shared is None or not _fits_layout(shared, [holding]):
        raise AllocationRefused(f"GPU {holding.uuid} of {core} is not shared in this way any more")
    wanted = max(1, shared.memory_units * len(holding.core) // CORE_UNITS_PER_GPU)
    names = (unit_name(holding.uuid, Half.MEMORY, n) for n in range(shared.memory_units))
    free = [unit for unit in names if book.holder(unit) is None]
    if len(free) < wanted:
        raise AllocationRefused(
            f"{core}: {len(holding.core)} without {memory} means the same share of memory, "
            f"{wanted} units of {format_size(shared.memory_unit_bytes)}, but {len(free)} are free "
            f"on GPU {holding.uuid}"
        )
    # From the top: the kubelet is steered to the lowest units, so it is least likely to offer them.
    return replace(holding, borrowed=tuple(free[-wanted:]), settled=True)
