"""Whose units these are: pure policy over the layout and the book.

The kubelet allocates core and memory of one container independently, in random order, without
saying for whom. It admits serially, which decides the plain case:

1. The first `Allocate` of a container *opens* an allocation on the GPU its units are of.
2. While an allocation of the family is open, the other half's `GetPreferredAllocation` is steered
   to that GPU (`preference`), and its `Allocate` joins it. Another GPU would split the pair, and is
   refused.
3. A second `Allocate` of the *same* half, a refusal, a pod that appeared since, `JOIN_WINDOW_S` or
   the container's start settle the allocation: what comes next belongs to another container.

Units that an allocation has already may come again while podresources has never shown it: it is a
plain init container's, whose units the kubelet gives to later containers of the pod. Once an
allocation was shown, its units are refused to anybody else.

A container that asked for one half only, or for whole GPUs, is completed when it starts
(`implicit_units`). Where two containers still ended in one allocation, podresources shows it and
their start is refused with a reason.

Everything takes the book and the time as arguments and returns new values or raises
`AllocationRefused`; the caller enters them into the book under its lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import Half, gpus_of, in_order, resource_name, shown, unit_number
from deviceplugin.policy.devices.exclusive_gpu import check_clients
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.devices.offer import gpu_units
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family

#: The kubelet asks for the halves of one container within milliseconds of each other.
JOIN_WINDOW_S = 5.0


def open_allocation(
    book: AllocationBook, family: Family, missing: Half, now_s: float
) -> Allocation | None:
    """Returns the allocation of ``family`` that waits for its ``missing`` half, if there is one."""
    for allocation in book.allocations.values():
        if (
            allocation.family is family
            and not allocation.settled
            and allocation.of(missing.other)
            and not allocation.of(missing)
            and now_s - allocation.changed_s <= JOIN_WINDOW_S
        ):
            return allocation
    return None


def allocate(
    layout: Layout,
    book: AllocationBook,
    family: Family,
    half: Half,
    units: Sequence[str],
    now_s: float,
    new_id: str,
) -> Allocation:
    """Returns the allocation that ``units`` open or join; the caller enters it.

    Args:
        units: what the kubelet decided to give.
        now_s: seconds on the agent's monotonic clock.
        new_id: allocation id for an allocation that is opened.

    Raises:
        AllocationRefused: units that do not exist, are held, are spread, or would split a pair.
    """
    what = f"{resource_name(layout.resource_domain, family, half)}: {len(units)}"
    gpus = {g.gpu.uuid: g for g in layout.of_family(family)}
    given = {uuid: in_order(here) for uuid, here in gpus_of(half, units, what).items()}
    partner = open_allocation(book, family, half, now_s)
    _check_given(book, half, given, gpus, partner, what)
    ordered = tuple(unit for here in given.values() for unit in here)
    if partner is None:
        first = next(iter(given))
        shared = gpus[first]
        if shared.served_by_mps:
            check_clients(shared.gpu, book, set(ordered), what)
        fresh = Allocation(
            new_id, family, first, shared.memory_unit_bytes, concurrency=shared.concurrency
        )
        return fresh.with_half(half, ordered, now_s)
    if set(partner.uuids) != set(given):
        raise AllocationRefused(
            f"{what} was given on GPU {' and '.join(given)}, but {len(partner.of(half.other))} "
            f"{half.other} of the same container are on GPU {' and '.join(partner.uuids)}; the two "
            "halves of a slice are never split over GPUs"
        )
    check_join(partner, half, len(units), gpus, what)
    # GPU by GPU as the first half has them, however the kubelet sends them: its files name them so.
    ordered = tuple(unit for uuid in partner.uuids for unit in given[uuid])
    return replace(partner.with_half(half, ordered, now_s), settled=True)


def settle_before(book: AllocationBook, family: Family, half: Half) -> list[Allocation]:
    """Returns the open allocations that an `Allocate` of ``half`` ends, settled.

    A container is asked for each half once, and the kubelet asks no second time, so the same half
    again is another container's: with the same units one's to whom an init container passed them.
    """
    return [
        replace(h, settled=True)
        for h in book.allocations.values()
        if h.family is family and not h.settled and h.of(half)
    ]


def _check_given(
    book: AllocationBook,
    half: Half,
    given: dict[str, list[str]],
    gpus: Mapping[str, SharedGpu],
    partner: Allocation | None,
    what: str,
) -> None:
    """Refuses units that are not offered, are somebody else's, or are spread over GPUs.

    Args:
        given: the units of each GPU, by number.
        partner: what the container has of the other half.
    """
    joined = partner.uuids if partner is not None else ()
    for uuid, units in given.items():
        if uuid not in gpus or unit_number(units[-1]) >= gpu_units(gpus[uuid], half):
            raise AllocationRefused(f"{what} names units that are not offered: {shown(units)}")
        for unit in (unit for unit in units if not book.is_free(unit)):
            for holder in book.holders(unit):
                if holder.owner is not None or unit in holder.implicit_units:
                    raise AllocationRefused(f"{what}: unit {unit} is held by {holder.described()}")
        # The other half of a container, and what an init container passes on, is nothing new there.
        if gpus[uuid].drains and uuid not in joined and any(map(book.is_free, units)):
            raise AllocationRefused(
                f"{what}: GPU {uuid} still carries slices of the sharing it had before, and "
                "nothing of it is given until they have ended"
            )
    if len(given) == 1:
        return
    for uuid, units in given.items():
        if len(units) != gpu_units(gpus[uuid], half):
            raise AllocationRefused(
                f"{what} is spread over the GPUs {', '.join(sorted(given))}; a slice is on one "
                f"GPU, or has all {gpu_units(gpus[uuid], half)} units of each"
            )
        others = [
            holder
            for holder in book.on_gpu(uuid)
            if holder is not partner and holder.owner is not None and not holder.missing_since
        ]
        if others:
            raise AllocationRefused(
                f"{what} means whole GPUs, but GPU {uuid} carries {others[0].described()}"
            )


def check_join(
    partner: Allocation, half: Half, count: int, gpus: Mapping[str, SharedGpu], what: str
) -> None:
    """Refuses a second half that does not suit the first: of whole GPUs it is all of them."""
    missing = [uuid for uuid in partner.uuids if uuid not in gpus]
    if missing:
        raise AllocationRefused(f"{what}: GPU {missing[0]} is not shared in this way any more")
    if len(partner.uuids) == 1:
        return
    whole = sum(gpu_units(gpus[uuid], half) for uuid in partner.uuids)
    if count != whole:
        raise AllocationRefused(
            f"{what} cannot go with {len(partner.uuids)} whole GPUs; leave it out, or ask for all "
            f"{whole} units of theirs"
        )
