"""Which units the kubelet had best take for a container: by `RULES`, one after the other. Pure.

A rule leaves all GPUs that it is given or fewer, decides on some of them, or refuses the request
with the numbers. The first that decides is the last one asked. What the kubelet then gives,
`pairing` judges.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.fractional import Placement
from deviceplugin.model.units import Half, gpus_of, resource_name
from deviceplugin.policy.devices.device_choice import Closest, first_by_index
from deviceplugin.policy.devices.exclusive_gpu import clients_most, is_full
from deviceplugin.policy.devices.layout import Layout, SharedGpu
from deviceplugin.policy.devices.offer import FreeUnits, gpu_units, rooms, withdrawn
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family

from . import pairing
from .bound_pods import Expected
from .placement import Need, are_whole, one_gpu, whole_gpus


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """What a GetPreferredAllocation asks for, and what is known of the container that asks.

    Attributes:
        available: what the kubelet believes free (with ``must_include``).
        must_include: what the container has already.
        count: how many in all.
        kin: of plain init containers of the same pod.
        returned: units that were offered again a moment ago: unless it offers them, the kubelet may
            not know yet.
        expected: of the container; None where that is not known. It decides between GPUs that may
            be taken, and never about whether the request is refused.
    """

    family: Family
    half: Half
    available: Sequence[str]
    must_include: Sequence[str]
    count: int
    kin: Sequence[Allocation] = ()
    returned: Set[str] = frozenset()
    expected: Expected | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """A request on its way through the rules.

    Attributes:
        what: the request, as messages name it.
        gpus: all of the family, by UUID.
        most: units of the half that one GPU has that is offered.
        had: the GPUs of which the container has units already.
        partner: the allocation that waits for this half.
        rooms: what is free on the GPUs that are left, by UUID.
        need: what the container takes in all; None where that is not known.
        chosen: the GPUs that were decided on; empty while none were.
    """

    request: UnitRequest
    book: AllocationBook
    closest: Closest
    what: str
    gpus: Mapping[str, SharedGpu]
    most: int
    had: tuple[str, ...]
    partner: Allocation | None
    rooms: Mapping[str, FreeUnits]
    need: Need | None
    chosen: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """The GPUs that a scheduler chose for the container, if one did."""
        return self.request.expected.gpus if self.request.expected is not None else ()

    def left(self, rooms: Mapping[str, FreeUnits]) -> "Search":
        """Returns the search among fewer GPUs."""
        return replace(self, rooms=rooms)


def prefer(
    layout: Layout,
    book: AllocationBook,
    request: UnitRequest,
    now_s: float,
    closest: Closest = first_by_index,
) -> list[str]:
    """Returns the units the kubelet had best take.

    Args:
        now_s: seconds on the agent's monotonic clock.
        closest: which of several free GPUs lie close together.

    Raises:
        AllocationRefused: no single GPU, or no whole ones, can give them, with the numbers.
    """
    search = _search(layout, book, request, now_s, closest)
    for rule in RULES:
        search = rule(search)
        if search.chosen:
            break
    units = (unit for uuid in search.chosen for unit in search.rooms[uuid].units)
    return [*request.must_include, *units][: request.count]


def _search(
    layout: Layout, book: AllocationBook, request: UnitRequest, now_s: float, closest: Closest
) -> Search:
    half, count = request.half, request.count
    what = f"{resource_name(layout.resource_domain, request.family, half)}: {count}"
    gpus = {shared.gpu.uuid: shared for shared in layout.of_family(request.family)}
    had = tuple(gpus_of(half, request.must_include, what)) if request.must_include else ()
    partner = pairing.open_allocation(book, request.family, half, now_s)
    joined = partner.uuids if partner is not None else ()
    # One that drains counts where the container is already; its units may be of another size.
    usable = [g for u, g in gpus.items() if not g.drains or u in joined or u in had]
    blocked = withdrawn(layout, book, joined) | (request.returned - set(request.available))
    return Search(
        request,
        book,
        closest,
        what,
        gpus,
        max((gpu_units(g, half) for g in gpus.values() if not g.drains), default=0),
        had,
        partner,
        rooms(usable, book, half, request.available, request.must_include, blocked),
        request.expected.need if request.expected is not None else None,
    )


def asks_for_units(search: Search) -> Search:
    """A request for nothing is refused."""
    if search.request.count < 1:
        raise AllocationRefused(f"{search.what} asks for nothing; ask for 1 to {search.most}")
    return search


def joins_its_other_half(search: Search) -> Search:
    """The second half goes where the first one is, and nowhere else."""
    partner, half, count = search.partner, search.request.half, search.request.count
    if partner is None:
        return search
    pairing.check_join(partner, half, count, search.gpus, search.what)
    here = {uuid: search.rooms[uuid] for uuid in partner.uuids}
    free = sum(room.count for room in here.values())
    if free < count or not set(search.had) <= set(here):
        raise AllocationRefused(
            f"{search.what} cannot join {len(partner.of(half.other))} {half.other} of the same "
            f"container on GPU {' and '.join(here)}: {free} {half} units are free there, and "
            "the two halves of a slice are never split over GPUs"
        )
    return replace(search, chosen=partner.uuids)


def finds_gpus_on_offer(search: Search) -> Search:
    """A family of which every GPU drains is given to nobody new."""
    if not search.had and all(shared.drains for shared in search.gpus.values()):
        raise AllocationRefused(
            f"{search.what} cannot be given: no GPU of this node is offered for it (any more)"
        )
    return search


def gets_whole_gpus(search: Search) -> Search:
    """More than one GPU has means whole GPUs; so do several that were chosen and are just that."""
    request, named = search.request, search.named
    if any(uuid in search.gpus and search.gpus[uuid].drains for uuid in search.had):
        return search
    if request.count <= search.most and not are_whole(
        search.rooms, request.half, request.count, search.had, named
    ):
        return search
    chosen = whole_gpus(
        search.rooms, request.half, request.count, search.had, search.closest, search.what, named
    )
    return replace(search, chosen=chosen)


def stays_on_its_gpu(search: Search) -> Search:
    """A container that has units of a GPU gets the others there."""
    if len(search.had) > 1:
        raise AllocationRefused(
            f"{search.what} has units of the GPUs {', '.join(search.had)} already"
        )
    if not search.had:
        return search
    return search.left({uuid: r for uuid, r in search.rooms.items() if uuid in search.had})


def leaves_full_mps_servers(search: Search) -> Search:
    """MPS takes so many clients on a GPU and no more."""
    own = frozenset(search.request.must_include)
    left = {
        uuid: r
        for uuid, r in search.rooms.items()
        if not (r.shared.served_by_mps and is_full(r.shared.gpu, search.book, own))
    }
    if search.rooms and not left:
        most = max(clients_most(r.shared.gpu) for r in search.rooms.values())
        raise AllocationRefused(
            f"{search.what}: every GPU of family {search.request.family.name.lower()} carries "
            f"{most} slices already, and MPS takes no more clients on a GPU; ask again when one "
            "has ended"
        )
    return search.left(left)


def follows_its_init_containers(search: Search) -> Search:
    """The kubelet gives it what they have of the other half, so it had best be there, too.

    A container that does not ask for the other half gets none of it.
    """
    request = search.request
    if request.expected is not None and not request.expected.need.of(request.half.other):
        return search
    theirs = {h.uuid for h in request.kin if _has_still(search.book, h, request.half.other)}
    near = {u: r for u, r in search.rooms.items() if u in theirs and r.count >= request.count}
    if not near:
        return search
    # The container has part of the other half there already. What it still needs is not known.
    return replace(search, rooms=near, need=None)


def takes_the_best_gpu(search: Search) -> Search:
    """The rest is a matter of placement, and of the one GPU that a scheduler may have chosen."""
    placement = next((r.shared.placement for r in search.rooms.values()), Placement.BINPACK)
    chosen = one_gpu(
        search.rooms,
        search.request.half,
        search.request.count,
        placement,
        search.what,
        search.need,
        search.named[0] if len(search.named) == 1 else "",
    )
    return replace(search, chosen=(chosen,))


#: In the order in which they are asked.
RULES: tuple[Callable[[Search], Search], ...] = (
    asks_for_units,
    joins_its_other_half,
    finds_gpus_on_offer,
    gets_whole_gpus,
    stays_on_its_gpu,
    leaves_full_mps_servers,
    follows_its_init_containers,
    takes_the_best_gpu,
)


def _has_still(book: AllocationBook, kin: Allocation, half: Half) -> bool:
    """Returns whether some of what an init container has of a half was given to nobody since.

    By its id: it may have been settled since the caller looked.
    """
    holders = (book.holder(unit) for unit in kin.of(half))
    return any(each is not None and each.allocation_id == kin.allocation_id for each in holders)
