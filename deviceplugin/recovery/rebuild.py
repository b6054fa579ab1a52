"""Allocations made again from the kubelet's record, where our own checkpoint lacks them. Pure.

`recorded` puts the kubelet's entries together by allocation; each becomes an allocation again. The
run directory, where it was not emptied by a reboot, adds whose it is, since when, and how large a
memory unit was; else the unit is the one of the present config.

What disagrees is told and left out, never guessed: halves on different GPUs, GPUs that are
not there, units that two pods have. Units that containers of *one* pod have in common are those of
its init containers, which the kubelet gives to the next ones. What our own checkpoint names is
never contradicted: the kubelet's file has pods that ended until it is written again. For the same
reason an allocation may be made again whose pod has ended; the ordinary podresources sync frees it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, gpu_of, shown, unit_name, unit_number
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.limits.asked import CONTAINER_PIPE_DIRECTORY
from libvgpu.allocation_dirs import AllocationMeta
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family

from .kubelet_checkpoint import KubeletEntry
from .kubelet_records import LIMITS_MOUNT, KubeletRecord, RecordDisagrees, by_allocation

#: Gives a lone half its default, as when its container starts; AllocationRefused if it cannot.
Complete = Callable[[AllocationBook, Allocation], Allocation]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What the kubelet has and our checkpoint does not.

    Attributes:
        allocations: made again, the oldest first.
        problems: one sentence for each allocation that was left out or is not whole.
        left_out: units on record with the kubelet that no allocation has; somebody may use them.
    """

    allocations: tuple[Allocation, ...]
    problems: tuple[str, ...]
    left_out: frozenset[str]


def rebuild(
    entries: Iterable[KubeletEntry],
    metas: Mapping[str, AllocationMeta],
    layout: Layout,
    complete: Complete,
    known: Iterable[Allocation] = (),
    gpus: Sequence[Gpu] | None = None,
) -> Rebuilt:
    """Returns the allocations that the kubelet has on record and ``known`` lacks.

    Args:
        entries: of the kubelet's checkpoint.
        metas: what the run directory says, by allocation id.
        layout: what the config wants; the slices may be of another sharing.
        complete: gives a lone half its default.
        known: what our own checkpoint names.
        gpus: those of the node; those of ``layout`` where nobody says.
    """
    if gpus is None:
        gpus = [shared.gpu for shared in layout.gpus]
    book = AllocationBook.of(known)
    found, strays = by_allocation(entries, layout.resource_domain)
    pods_of = _pods_by_unit(found, book)
    problems = [
        f"{stray.resource} of container {stray.container} of pod {stray.pod_uid} is left out: the "
        f"kubelet's record of its answer mounts no {LIMITS_MOUNT}"
        for stray in strays
    ]
    left_out = {unit for stray in strays for unit in stray.units}
    made = []
    for allocation_id, one in found.items():
        if allocation_id in book.allocations:
            continue
        try:
            _check_sharing(one, pods_of)
            made.append(_allocation(one, metas.get(allocation_id), layout, gpus))
        except RecordDisagrees as why:
            problems.append(f"{one.described()} is left out: {why}")
            left_out |= one.all_units
    made.sort(key=lambda h: (h.changed_at, h.allocation_id))
    for allocation in made:
        book.put(allocation)
    for number, allocation in enumerate(made):
        try:
            made[number] = complete(book, allocation)
        except AllocationRefused as why:
            problems.append(f"{found[allocation.allocation_id].described()} lacks a half: {why}")
        book.put(made[number])
    held = {unit for unit in left_out if book.holder(unit) is not None}
    return Rebuilt(tuple(made), tuple(problems), frozenset(left_out - held))


def _pods_by_unit(found: Mapping[str, KubeletRecord], book: AllocationBook) -> dict[str, set[str]]:
    """Returns which pods have each unit; an allocation whose pod nobody knows stands for itself."""
    pods: dict[str, set[str]] = {}
    for one in found.values():
        for unit in one.all_units:
            pods.setdefault(unit, set()).update(one.pods)
    for allocation in book.allocations.values():
        recorded = found.get(allocation.allocation_id)
        its = recorded.pods if recorded else {f"allocation {allocation.allocation_id} of the agent"}
        for unit in (*allocation.core, *allocation.memory, *allocation.implicit_units):
            pods.setdefault(unit, set()).update(its)
    return pods


def _check_sharing(one: KubeletRecord, pods_of: Mapping[str, set[str]]) -> None:
    twice = [unit for unit in one.all_units if len(pods_of[unit]) > 1]
    if twice:
        others = set().union(*(pods_of[unit] for unit in twice)) - one.pods
        raise RecordDisagrees(
            f"{shown(twice)} are on record for {' and '.join(sorted(others)) or 'two pods'} too"
        )


def _allocation(
    one: KubeletRecord, meta: AllocationMeta | None, layout: Layout, of_node: Sequence[Gpu]
) -> Allocation:
    units = one.units()
    gpus = _gpus(units, of_node)
    order = [gpu.uuid for gpu in gpus]
    owner = None
    if meta is not None and meta.pod and meta.container in one.containers:
        owner = Owner(meta.namespace, meta.pod, meta.container)

    def ordered(half: Half) -> tuple[str, ...]:
        return tuple(
            sorted(units.get(half, ()), key=lambda u: (order.index(gpu_of(u)), unit_number(u)))
        )

    return Allocation(
        allocation_id=one.allocation_id,
        family=one.family(),
        uuid=order[0],
        memory_unit_bytes=_memory_unit(one, units.get(Half.MEMORY, ()), gpus, meta, layout),
        core=ordered(Half.CORE),
        memory=ordered(Half.MEMORY),
        settled=True,
        changed_at=meta.created_at if meta else 0.0,
        owner=owner,
        shim_build=one.build,
        concurrency=_concurrency(one, gpus, layout),
    )


def _concurrency(one: KubeletRecord, gpus: Sequence[Gpu], layout: Layout) -> Concurrency:
    """Returns how it runs next to others: a client of MPS has the pipe directory mounted.

    One with several GPUs is alone there, so its answers say nothing, and the config counts.
    """
    shared = layout.find(gpus[0].uuid)
    if one.family() is not Family.VGPU:
        return Concurrency.TIME_SLICES
    if len(gpus) > 1 and shared is not None and shared.family is Family.VGPU:
        return shared.concurrency
    is_client = any(CONTAINER_PIPE_DIRECTORY in entry.mounts for entry, _, _ in one.entries)
    return Concurrency.MPS if is_client else Concurrency.TIME_SLICES


def _gpus(units: Mapping[Half, tuple[str, ...]], of_node: Sequence[Gpu]) -> list[Gpu]:
    """Returns the GPUs of an allocation: one, or several that it has whole."""
    sets = [{gpu_of(unit) for unit in given} for given in units.values()]
    uuids = set().union(*sets)
    gpus = [gpu for gpu in of_node if gpu.uuid in uuids]
    unknown = uuids - {gpu.uuid for gpu in gpus}
    if unknown:
        raise RecordDisagrees(f"GPU {shown(unknown)} is not on this node")
    if any(each != uuids for each in sets):
        raise RecordDisagrees(f"its halves are on different GPUs, {' and '.join(sorted(uuids))}")
    if len(uuids) > 1:
        every = (unit_name(u, Half.CORE, n) for u in uuids for n in range(CORE_UNITS_PER_GPU))
        if set(units.get(Half.CORE, ())) != set(every):
            raise RecordDisagrees(f"it has parts of several GPUs, {' and '.join(sorted(uuids))}")
    return gpus


def _memory_unit(
    one: KubeletRecord,
    units: tuple[str, ...],
    gpus: list[Gpu],
    meta: AllocationMeta | None,
    layout: Layout,
) -> int:
    """Returns the bytes of a memory unit: as the run directory says, else as the config does."""
    size = meta.memory_unit_bytes if meta is not None else 0
    for gpu in gpus:
        shared = layout.find(gpu.uuid)
        if not size and (shared is None or shared.family is not one.family()):
            now = f"of family {shared.family.name.lower()}" if shared else "not shared"
            raise RecordDisagrees(
                f"GPU {gpu.uuid} is {now} now, and nobody knows how large a memory unit was"
            )
        size = size or (shared.memory_unit_bytes if shared else 0)
        most = max((unit_number(u) for u in units if gpu_of(u) == gpu.uuid), default=0)
        if gpu.memory_bytes and (most + 1) * size > gpu.memory_bytes:
            raise RecordDisagrees(f"GPU {gpu.uuid} has no memory unit {most} of {size} bytes")
    return size
