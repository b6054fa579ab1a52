"""What a pod asks the kubelet for, as values: its containers in the order of their admission.

The kubelet gives devices container by container: first the init containers in their order, sidecars
(restartable ones) among them, then the others. What a plain init container had, later containers of
the pod get before anything else (`devicesToReuse` in the kubelet's device manager).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from libvgpu.limits import Family

from .chosen_gpus import ChosenGpus
from .units import Half, fraction_resources, resource_name


class ContainerKind(StrEnum):
    """When a container runs."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What one container asks for.

    Attributes:
        amounts: of each resource of the domain, by its full name; every one at least 1. Limits,
            since the kubelet goes by them.
    """

    name: str
    amounts: Mapping[str, int]
    kind: ContainerKind = ContainerKind.APP

    def amount(self, domain: str, family: Family, half: Half) -> int:
        """Returns how many units of one half it asks for."""
        return self.amounts.get(resource_name(domain, family, half), 0)

    def families(self, domain: str) -> tuple[Family, ...]:
        """Returns the families of which it asks for a fraction."""
        return tuple(f for f in Family if any(self.amount(domain, f, half) for half in Half))

    def devices(self, domain: str) -> dict[str, int]:
        """Returns how many whole devices or replicas it asks for, by resource."""
        fractions = fraction_resources(domain)
        return {name: count for name, count in self.amounts.items() if name not in fractions}


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one pod asks for, and what matters of it for where it goes.

    Attributes:
        created_at: seconds since the epoch; 0 where it is not known.
        node: that it is bound to, empty before.
        priority: of its class.
        containers: in the order of their admission; those that ask for nothing of the domain are
            left out.
        annotations: those of the domain, by their full key.
        chosen: the GPUs that were chosen for it, None where nobody did.
        is_ended: it has succeeded or failed, so it holds nothing any more.
        is_acknowledged: the kubelet has told of it, which it does once it has admitted or refused
            it.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[ContainerRequest, ...]
    created_at: float = 0.0
    node: str = ""
    priority: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    chosen: ChosenGpus | None = None
    is_ended: bool = False
    is_acknowledged: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
