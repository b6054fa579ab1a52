"""The resources of this node, each as what a plugin server asks: what there is, and what is given.

A fraction's two resources are answered by `Admission`, one of whole devices by `DeviceAdmission`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from deviceplugin.model.units import Half, resource_name
from deviceplugin.store.container_answer import Answer
from deviceplugin.store.node_state import NodeState
from libvgpu.limits import Family

from .service import SliceService, Unit

Ids = Sequence[str]


@dataclass(frozen=True, slots=True)
class ResourceOffer:
    """One resource, and who answers for it; a VgpuError has a sentence for the pod.

    Attributes:
        name: of the resource.
        state: whose revision rises when ``units`` changes.
        units: returns the current revision and everything that is listed.
        prefer: answers GetPreferredAllocation for one container: of what is available with what
            must be included, so many.
        allocate: answers Allocate for one container.
        pre_start: answers PreStartContainer.
    """

    name: str
    state: NodeState
    units: Callable[[], tuple[int, list[Unit]]]
    prefer: Callable[[Ids, Ids, int], list[str]]
    allocate: Callable[[Ids], Answer]
    pre_start: Callable[[Ids], None]


def fraction_offer(service: SliceService, family: Family, half: Half) -> ResourceOffer:
    """Returns one half of a family."""
    return ResourceOffer(
        resource_name(service.layout.resource_domain, family, half),
        service.state,
        partial(service.units, family, half),
        partial(service.admission.prefer, family, half),
        partial(service.admission.allocate, family, half),
        partial(service.starts.pre_start, family, half),
    )


def device_offer(service: SliceService, name: str) -> ResourceOffer:
    """Returns one resource of whole devices or replicas."""
    return ResourceOffer(
        name,
        service.state,
        partial(service.device_units, name),
        partial(service.devices.prefer, name),
        partial(service.devices.allocate, name),
        partial(service.devices.pre_start, name),
    )
