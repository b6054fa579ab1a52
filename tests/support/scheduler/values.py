"""Nodes, pods and a planner of the simplest kind, for tests of the scheduler's state."""

from collections.abc import Mapping, Sequence

from deviceplugin.model.chosen_gpus import ChosenGpus
from deviceplugin.model.pod_requests import ContainerKind, ContainerRequest, PodRequest
from deviceplugin.model.published import (
    FORM,
    PublishedGpu,
    PublishedNode,
    PublishedResource,
    PublishedSharing,
    PublishedSlice,
)
from deviceplugin.scheduler.search.node_view import NodeView, Reservation, Taken
from deviceplugin.scheduler.search.plans import Plan, Refusal

DOMAIN = "nvidia.com"
CORE, MEMORY = f"{DOMAIN}/vgpu-core", f"{DOMAIN}/vgpu-memory"


def gpu(
    number: int, units: int = 80, family: str = "vgpu", node: str = "n1", unhealthy: str = ""
) -> PublishedGpu:
    """Returns a GPU that is shared in units of 1 GiB."""
    sharing = PublishedSharing(family, 1 << 30, units)
    return PublishedGpu(
        number, f"GPU-{node}-{number}", "NVIDIA H100 80GB HBM3", units << 30, sharing, unhealthy
    )


def published(
    *slices: PublishedSlice,
    count: int = 2,
    node: str = "n1",
    resources: Sequence[PublishedResource] = (),
    gpus: Sequence[PublishedGpu] | None = None,
) -> PublishedNode:
    """Returns the inventory of a node with some GPUs."""
    made = tuple(gpu(number, node=node) for number in range(count)) if gpus is None else gpus
    return PublishedNode(FORM, DOMAIN, tuple(made), slices, tuple(resources))


def held_slice(
    id_: str,
    name: str | None,
    core: int,
    memory: int,
    number: int = 0,
    container: str = "main",
    node: str = "n1",
) -> PublishedSlice:
    """Returns a slice of one GPU; of a pod of namespace ``team`` or, with None, of nobody known."""
    pod = None if name is None else ("team", name)
    units = {f"GPU-{node}-{number}": (core, memory)}
    return PublishedSlice(id_, units, pod, container if name is not None else "")


def asking(
    name: str,
    amounts: Mapping[str, int],
    kind: ContainerKind = ContainerKind.APP,
) -> ContainerRequest:
    """Returns a container; the keys of its amounts are without the domain."""
    return ContainerRequest(name, {f"{DOMAIN}/{key}": n for key, n in amounts.items()}, kind)


def pod_of(
    name: str,
    core: int = 0,
    memory: int = 0,
    node: str = "",
    uid: str = "",
    chosen: ChosenGpus | None = None,
    containers: Sequence[ContainerRequest] = (),
    created_at: float = 0.0,
    is_ended: bool = False,
    namespace: str = "team",
    priority: int = 0,
) -> PodRequest:
    """Returns a pod; without containers given it has one, ``main``, with the amounts."""
    amounts = {key: n for key, n in (("vgpu-core", core), ("vgpu-memory", memory)) if n}
    return PodRequest(
        uid or f"uid-{name}",
        namespace,
        name,
        tuple(containers) or (asking("main", amounts),),
        created_at,
        node,
        priority,
        {},
        chosen,
        is_ended,
    )


def first_fit(view: NodeView, request: PodRequest) -> Plan | Refusal:
    """Puts all containers on the first GPU with room for the sum of what they ask for."""
    core = sum(each.amounts.get(CORE, 0) for each in request.containers)
    memory = sum(each.amounts.get(MEMORY, 0) for each in request.containers)
    for room in view.gpus:
        if not room.problem and room.core >= core and room.memory >= memory:
            taken = Taken(core, memory, len(request.containers))
            chosen = {each.name: (room.uuid,) for each in request.containers}
            return Plan(chosen, Reservation({room.uuid: taken}))
    return Refusal(f"no GPU has {core} core and {memory} memory free")
