"""Whether all containers of a pod fit a node together, and where (`node_search`): pure."""

from dataclasses import replace
from functools import lru_cache

from deviceplugin.model.pod_requests import PodRequest
from deviceplugin.model.units import CORE_UNITS_PER_GPU
from libvgpu.limits import Family

from .demand import Demand, demand_of
from .node_search import Search
from .node_view import DRAINS, DeviceRoom, GpuRoom, NodeView, Reservation, Taken
from .placing import Rooms
from .plans import Plan, Refusal, added, part_left
from .wishes import Wishes

__all__ = ["Plan", "Refusal", "Shape", "fits_emptied", "plan", "plan_of", "shape_of"]

#: A domain; of each GPU index, UUID, product, family, memory units, whether lone halves may be, and
#: problem; of each resource name, total, most and products.
Shape = tuple[
    str,
    tuple[tuple[int, str, str, Family, int, bool, str], ...],
    tuple[tuple[str, int, int, tuple[str, ...]], ...],
]


def plan(view: NodeView, request: PodRequest, wishes: Wishes) -> Plan | Refusal:
    """Returns where a pod would go on a node, or why it cannot."""
    demand = demand_of(request, wishes, view.domain)
    if isinstance(demand, Refusal):
        return demand
    return plan_of(view, demand, [container.name for container in request.containers])


def plan_of(view: NodeView, demand: Demand, names: list[str]) -> Plan | Refusal:
    """Returns the same for a demand.

    Args:
        names: of the containers, in the order of its asks.
    """
    search = Search(view, demand)
    found = search.run()
    if isinstance(found, Refusal):
        if not found.resolvable or len(demand.asks) == 1:
            return found
        return replace(found, resolvable=fits_emptied(shape_of(view, demand), demand))
    gpus = view.gpus
    fractions = {places[0] for places in found.chosen if len(places) == 1}
    remains = added(
        part_left(found.core[place], found.memory[place], gpus[place].memory_units)
        for place in sorted(fractions)
    )
    return Plan(
        {
            name: tuple(gpus[place].uuid for place in places)
            for name, places in zip(names, found.chosen, strict=True)
            if places
        },
        Reservation(
            {gpus[place].uuid: Taken(*taken) for place, taken in found.taken.items()},
            {name: count for name, count in found.devices_taken.items() if count},
        ),
        opens=sum(gpus[place].is_empty for place in found.taken),
        whole=len({place for places in found.chosen if len(places) > 1 for place in places}),
        leftover=remains / len(fractions) if fractions else 0.0,
    )


def shape_of(view: NodeView, demand: Demand) -> Shape:
    """Returns what there is of a node that has no pod; nodes of one kind have the same, and the
    very same object as long as it was in use lately.
    """
    if demand.wishes.use_gpus or demand.wishes.avoid_gpus:
        return _shape(view, True)
    found: Shape | None = view.kept.get("shape")
    if found is None:
        found = view.kept["shape"] = _same(_shape(view, False))
    return found


def _shape(view: NodeView, by_uuid: bool) -> Shape:
    gpus = (
        (
            gpu.index,
            gpu.uuid if by_uuid else str(place),
            gpu.product,
            gpu.family,
            gpu.memory_units,
            gpu.lone_halves,
            "" if gpu.problem == DRAINS else gpu.problem,
        )
        for place, gpu in enumerate(view.gpus)
    )
    devices = ((name, each.total, each.most, each.products) for name, each in view.devices.items())
    return view.domain, tuple(gpus), tuple(devices)


@lru_cache(4096)
def _same(shape: Shape) -> Shape:
    return shape


@lru_cache(4096)
def fits_emptied(shape: Shape, demand: Demand) -> bool:
    """Returns whether a pod would fit a node without other pods."""
    domain, gpus, devices = shape
    view = NodeView(
        "",
        domain,
        tuple(
            GpuRoom(index, uuid, product, family, CORE_UNITS_PER_GPU, units, units, 1,
                    lone_halves=lone_halves, problem=problem)
            for index, uuid, product, family, units, lone_halves, problem in gpus
        ),
        {name: DeviceRoom(total, total, most, of) for name, total, most, of in devices},
    )  # fmt: skip
    search = Search(view, demand)
    return isinstance(search.run(), Rooms) or search.gave_up
