"""What a pod takes of a node before its agent shows it: pure.

Where somebody chose the GPUs and they have room, the agent will take them, so that is what the pod
takes. Where nothing is known but that the pod was bound to the node (`everywhere`), it takes its
amounts on every GPU that could hold some of it: then whatever GPU the agent takes, nobody else was
promised it.
"""

from collections.abc import Callable, Mapping

from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half
from deviceplugin.pages.published import PublishedGpu, PublishedNode
from deviceplugin.scheduler.search.node_view import NodeView, Reservation, Taken
from deviceplugin.scheduler.search.plans import Plan, Planner
from libvgpu.errors import VgpuError
from libvgpu.limits import Family

_Key = tuple[str, Half]


def chosen_where_free(
    view: NodeView,
    published: PublishedNode,
    request: PodRequest,
    rest_of: Callable[[PodRequest, Reservation], Reservation],
) -> Reservation | None:
    """Returns what a pod takes of the GPUs that were chosen for it; None where it cannot take them.

    Args:
        rest_of: returns what of a reservation the view does not have as taken.
    """
    if request.chosen is None or request.chosen.node != view.name:
        return None
    chosen = chosen_reservation(published, request)
    return chosen if chosen is not None and has_room(view, rest_of(request, chosen)) else None


def guessed_reservation(
    view: NodeView, published: PublishedNode, request: PodRequest, planner: Planner
) -> Reservation:
    """Returns what a pod takes that is bound to the node, where nobody knows what it will get."""
    try:
        plan = planner(view, request)
    except VgpuError:  # its annotations ask for what cannot be; the node was not asked for them
        return everywhere(published, request)
    return plan.reservation if isinstance(plan, Plan) else everywhere(published, request)


def chosen_reservation(published: PublishedNode, request: PodRequest) -> Reservation | None:
    """Returns what a pod takes of the GPUs that were chosen for it.

    None where nobody chose, or not for all of its containers, or GPUs that cannot be meant: of
    another node or family, or several for an amount that is none of whole GPUs.
    """
    if request.chosen is None:
        return None
    gpus = {each.uuid: each for each in published.gpus}
    taken: dict[str, Taken] = {}
    #: What plain init containers had and later containers take before anything else.
    reusable: dict[_Key, int] = {}
    for container in request.containers:
        for family in container.families(published.domain):
            uuids = request.chosen.containers.get(container.name, ())
            found = [gpus[each] for each in uuids if each in gpus]
            if not found or len(found) != len(uuids):
                return None
            for gpu in found:
                amounts = amounts_on(published.domain, container, family, gpu, len(found))
                if amounts is None:
                    return None
                # The agent gives what comes by default, not the kubelet: it counts each time.
                core, memory = (
                    _new(reusable, (gpu.uuid, half), amount, container.kind)
                    if container.amount(published.domain, family, half)
                    else amount
                    for half, amount in amounts.items()
                )
                before = taken.get(gpu.uuid, Taken(0, 0, 0))
                taken[gpu.uuid] = before + Taken(core, memory, 1)
    return Reservation(taken, _devices(published.domain, request))


def everywhere(published: PublishedNode, request: PodRequest) -> Reservation:
    """Returns what a pod takes where it is not known on which GPU it will be."""
    taken: dict[str, Taken] = {}
    for gpu in published.gpus:
        units = gpu.sharing.memory_units
        most = Taken(0, 0, 0)
        for container in request.containers:
            for family in container.families(published.domain):
                if not _is_of(gpu, family):
                    continue
                core, memory = (container.amount(published.domain, family, half) for half in Half)
                if core <= CORE_UNITS_PER_GPU and memory <= units:
                    most += Taken(core, memory or _implicit(gpu, core), 1)
                else:  # whole GPUs, of which it may take this one
                    most += Taken(CORE_UNITS_PER_GPU if core else 0, units, 1)
        if most.containers:
            taken[gpu.uuid] = Taken(
                min(most.core, CORE_UNITS_PER_GPU), min(most.memory, units), most.containers
            )
    return Reservation(taken, _devices(published.domain, request))


def has_room(view: NodeView, reservation: Reservation) -> bool:
    """Returns whether all that a reservation takes is free, on GPUs of which something is given."""
    rooms = {each.uuid: each for each in view.gpus}
    for uuid, taken in reservation.gpus.items():
        room = rooms.get(uuid)
        if room is None or room.problem or room.core < taken.core or room.memory < taken.memory:
            return False
        if room.containers_left is not None and room.containers_left < taken.containers:
            return False
    return all(
        resource in view.devices and view.devices[resource].free >= count
        for resource, count in reservation.devices.items()
    )


def is_possible(published: PublishedNode, reservation: Reservation) -> bool:
    """Returns whether the agent still gives of each GPU that a reservation is of."""
    given = {each.uuid for each in published.gpus if not each.unhealthy and not each.sharing.drains}
    return given.issuperset(reservation.gpus)


def _is_of(gpu: PublishedGpu, family: Family) -> bool:
    return gpu.sharing.family == family.name.lower()


def _implicit(gpu: PublishedGpu, core: int) -> int:
    """Returns the memory that comes with core alone."""
    units = gpu.sharing.memory_units
    return max(1, units * core // CORE_UNITS_PER_GPU) if core else 0


def amounts_on(
    domain: str, container: ContainerRequest, family: Family, gpu: PublishedGpu, gpu_count: int
) -> Mapping[Half, int] | None:
    """Returns what a container takes of one of its GPUs; None where it cannot be so."""
    core, memory = (container.amount(domain, family, half) for half in Half)
    units = gpu.sharing.memory_units
    if not _is_of(gpu, family):
        return None
    if gpu_count > 1:
        if core not in (0, gpu_count * CORE_UNITS_PER_GPU):
            return None
        return {Half.CORE: CORE_UNITS_PER_GPU if core else 0, Half.MEMORY: units}
    if core > CORE_UNITS_PER_GPU or memory > units:
        return None
    return {Half.CORE: core, Half.MEMORY: memory or _implicit(gpu, core)}


def _new(reusable: dict[_Key, int], key: _Key, amount: int, kind: ContainerKind) -> int:
    """Returns how much of an amount no earlier init container had, and keeps account of it."""
    reused = min(amount, reusable.get(key, 0))
    if kind is ContainerKind.INIT:
        reusable[key] = reusable.get(key, 0) + amount - reused
    else:
        reusable[key] = reusable.get(key, 0) - reused
    return amount - reused


def _devices(domain: str, request: PodRequest) -> dict[str, int]:
    reusable: dict[_Key, int] = {}
    found: dict[str, int] = {}
    for container in request.containers:
        for resource, count in container.devices(domain).items():
            new = _new(reusable, (resource, Half.CORE), count, container.kind)
            found[resource] = found.get(resource, 0) + new
    return found
