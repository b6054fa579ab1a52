"""What is free on one node: plain values, made of what its agent published and what is on its way.

Pure. What the agent published counts as it stands: what its slices hold is not free, whosever they
are. A reservation is for a pod that was bound, or is being bound, and that the agent does not show
yet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deviceplugin.model.fractional import Placement
from deviceplugin.model.units import CORE_UNITS_PER_GPU
from deviceplugin.pages.published import PublishedGpu, PublishedNode
from libvgpu.limits import Family

#: The problem of a GPU of which something will be given again once its containers have ended.
DRAINS = "it still carries slices of the sharing it had before"


@dataclass(frozen=True, slots=True)
class Taken:
    """What one pod takes of one GPU."""

    core: int
    memory: int
    containers: int

    def __add__(self, other: "Taken") -> "Taken":
        return Taken(
            self.core + other.core,
            self.memory + other.memory,
            self.containers + other.containers,
        )


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one pod takes of a node.

    Attributes:
        gpus: by UUID, of GPUs that are shared in units.
        devices: how many whole devices or replicas, by resource.
    """

    gpus: Mapping[str, Taken] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """What is free of one GPU that is shared in units.

    Attributes:
        core: free units, of 100.
        memory: free units, of ``memory_units``.
        containers_left: how many more MPS serves; None where it does not.
        is_empty: nobody has anything of it.
        problem: why nothing of it is given now, as a phrase; empty where it is given.
    """

    index: int
    uuid: str
    product: str
    family: Family
    core: int
    memory: int
    memory_units: int
    memory_unit_bytes: int
    containers_left: int | None = None
    is_empty: bool = True
    lone_halves: bool = True
    placement: Placement = Placement.BINPACK
    closeness: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DeviceRoom:
    """What is free of one resource of whole devices or replicas.

    Attributes:
        most: how many a container may have; 0: as many as there are.
    """

    free: int
    total: int
    most: int = 0
    products: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeView:
    """What is free of one node.

    Attributes:
        domain: of its resources.
        gpus: in the order of their indexes, those of which nothing is given included.
        devices: by resource.
        kept: what was made of it and is of use again, by a name of who made it.
    """

    name: str
    domain: str
    gpus: tuple[GpuRoom, ...]
    devices: Mapping[str, DeviceRoom]
    kept: dict[str, Any] = field(
        default_factory=dict, init=False, compare=False, repr=False, hash=False
    )


def view_of(
    name: str, published: PublishedNode, reservations: Iterable[Reservation] = ()
) -> NodeView:
    """Returns what is free; never less than nothing."""
    gpus: dict[str, Taken] = {}
    for each in published.slices:
        for uuid, (core, memory) in each.units.items():
            gpus[uuid] = gpus.get(uuid, _NOTHING) + Taken(core, memory, 1)
    devices: dict[str, int] = {each.name: each.held for each in published.resources}
    for reservation in reservations:
        for uuid, taken in reservation.gpus.items():
            gpus[uuid] = gpus.get(uuid, _NOTHING) + taken
        for resource, count in reservation.devices.items():
            devices[resource] = devices.get(resource, 0) + count
    return NodeView(
        name,
        published.domain,
        tuple(
            room
            for each in published.gpus
            if (room := _room(each, gpus.get(each.uuid, _NOTHING))) is not None
        ),
        {
            each.name: DeviceRoom(
                max(0, each.total - devices[each.name]), each.total, each.most, each.products
            )
            for each in published.resources
        },
    )


def has_room(view: NodeView, reservation: Reservation) -> bool:
    """Returns whether a node has free what a reservation takes."""
    rooms = {gpu.uuid: gpu for gpu in view.gpus if not gpu.problem}
    return all(
        (room := rooms.get(uuid)) is not None
        and room.core >= taken.core
        and room.memory >= taken.memory
        and (room.containers_left is None or room.containers_left >= taken.containers)
        for uuid, taken in reservation.gpus.items()
    ) and all(
        (device := view.devices.get(name)) is not None and device.free >= count
        for name, count in reservation.devices.items()
    )


_NOTHING = Taken(0, 0, 0)
_FAMILIES = {family.name.lower(): family for family in Family}


def _room(gpu: PublishedGpu, taken: Taken) -> GpuRoom | None:
    """Returns the room on a GPU; None where it is shared in a way that is not known here."""
    sharing = gpu.sharing
    family = _FAMILIES.get(sharing.family)
    if family is None:
        return None
    problem = gpu.unhealthy
    if not problem and sharing.drains:
        problem = DRAINS
    return GpuRoom(
        gpu.index,
        gpu.uuid,
        gpu.product,
        family,
        max(0, CORE_UNITS_PER_GPU - taken.core),
        max(0, sharing.memory_units - taken.memory),
        sharing.memory_units,
        sharing.memory_unit_bytes,
        None
        if sharing.most_containers is None
        else max(0, sharing.most_containers - taken.containers),
        taken == _NOTHING,
        sharing.lone_halves,
        Placement.SPREAD if sharing.placement == Placement.SPREAD else Placement.BINPACK,
        gpu.closeness,
        problem,
    )
