"""What a node has and what of it is held, as its agent publishes it for schedulers. Pure.

What the kubelet is not offered is not there: GPUs that are withheld or left out, replicas of a GPU
that is unhealthy. A GPU that is shared in units stands there with the reason while nothing of it is
given, since its slices are still held.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deviceplugin.model.allocations import Owner
from deviceplugin.model.fractional import LoneHalves
from deviceplugin.model.held_devices import Held
from deviceplugin.pages.published import (
    FORM,
    PublishedGpu,
    PublishedNode,
    PublishedResource,
    PublishedSharing,
)
from deviceplugin.policy.devices.device_resources import DeviceResource, is_well
from deviceplugin.policy.devices.exclusive_gpu import clients_most
from deviceplugin.policy.devices.layout import Layout, SharedGpu

from .slices import Holdings, published_slices


@dataclass(frozen=True, slots=True)
class NodeMoment:
    """What the agent knows of its node at one moment.

    Attributes:
        layout: in force.
        held: who has devices whole or as replicas.
        unhealthy: why each GPU is, by UUID.
    """

    layout: Layout
    holdings: Holdings = field(default_factory=Holdings)
    held: Held = field(default_factory=dict)
    unhealthy: Mapping[str, str] = field(default_factory=dict)


def published_node(moment: NodeMoment) -> PublishedNode:
    """Returns what is published of a node; the same for the same moment."""
    layout = moment.layout
    gpus = [shared for shared in layout.gpus if not shared.replicas]
    uuids = {shared.gpu.uuid for shared in gpus}
    return PublishedNode(
        FORM,
        layout.resource_domain,
        tuple(_gpu(shared, uuids, moment.unhealthy) for shared in gpus),
        published_slices(layout, moment.holdings),
        _resources(moment),
    )


def _gpu(shared: SharedGpu, uuids: set[str], unhealthy: Mapping[str, str]) -> PublishedGpu:
    gpu = shared.gpu
    return PublishedGpu(
        gpu.index,
        gpu.uuid,
        gpu.name,
        gpu.memory_bytes,
        PublishedSharing(
            shared.family.name.lower(),
            shared.memory_unit_bytes,
            shared.memory_units,
            shared.placement.value,
            shared.drains,
            clients_most(gpu) if shared.served_by_mps else None,
            shared.lone_halves is LoneHalves.ALLOW,
        ),
        _why_unhealthy(shared, unhealthy),
        {uuid: close for uuid, close in sorted(gpu.closeness.items()) if uuid in uuids},
        gpu.mig.profile if gpu.mig is not None else "",
    )


def _why_unhealthy(shared: SharedGpu, unhealthy: Mapping[str, str]) -> str:
    gpu = shared.gpu
    if is_well(gpu, unhealthy):
        return ""
    own = unhealthy.get(gpu.uuid)
    if own is None and gpu.mig is not None:
        own = unhealthy.get(gpu.mig.parent_uuid)
    return own or "unhealthy"


def _resources(moment: NodeMoment) -> tuple[PublishedResource, ...]:
    found = {each.name: each for each in moment.layout.resources}
    holders: dict[str, dict[str, Owner | None]] = {name: {} for name in found}
    for name, device_id in moment.held:
        holders.setdefault(name, {})[device_id] = moment.held[name, device_id].owner
    for allocation in moment.holdings.allocations:
        for device_id in allocation.replicas:
            of = _resource_of(device_id, found.values(), moment.held)
            if of is not None and holders[of].get(device_id) is None:
                holders[of][device_id] = allocation.owner
    return tuple(
        _resource(name, found.get(name), holders[name], moment.unhealthy)
        for name in sorted(holders)
    )


def _resource_of(device_id: str, resources: Iterable[DeviceResource], held: Held) -> str | None:
    """Returns which resource a replica is of; None where none has it (any more)."""
    for each in resources:
        if (each.name, device_id) in held or each.device_of(device_id) is not None:
            return each.name
    return None


def _resource(
    name: str,
    resource: DeviceResource | None,
    holders: Mapping[str, Owner | None],
    unhealthy: Mapping[str, str],
) -> PublishedResource:
    devices = resource.devices if resource is not None else ()
    free = sum(
        each not in holders
        for device in devices
        if not device.drains and is_well(device.gpu, unhealthy)
        for each in device.ids
    )
    is_one = resource is not None and resource.refuses_more_than_one and resource.kind is not None
    pods = ((o.namespace, o.pod) if o is not None else ("", "") for o in holders.values())
    return PublishedResource(
        name,
        free + len(holders),
        len(holders),
        tuple(sorted(pods)),
        int(is_one),
        tuple(sorted({device.gpu.name for device in devices})),
    )
