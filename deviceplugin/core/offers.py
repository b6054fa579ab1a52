"""The resources of this node, each as what a plugin server asks: what there is, and what is given.

A fraction's two resources are answered by `Admission`, one of whole devices by `DeviceAdmission`.
"""

from collections.abc import Sequence
from typing import Protocol

from deviceplugin.model.units import Half, resource_name
from deviceplugin.store.container_answer import Answer
from deviceplugin.store.node_state import NodeState
from libvgpu.limits import Family

from .service import SliceService, Unit


class ResourceOffer(Protocol):
    """One resource; the methods raise VgpuError with a sentence for the pod."""

    name: str
    state: NodeState

    def units(self) -> tuple[int, list[Unit]]:
        """Returns the current revision and everything that is listed."""
        ...

    def prefer(
        self, available: Sequence[str], must_include: Sequence[str], count: int
    ) -> list[str]:
        """Answers GetPreferredAllocation for one container."""
        ...

    def allocate(self, ids: Sequence[str]) -> Answer:
        """Answers Allocate for one container."""
        ...

    def pre_start(self, ids: Sequence[str]) -> None:
        """Answers PreStartContainer."""
        ...


class FractionOffer:
    """One half of a family."""

    def __init__(self, service: SliceService, family: Family, half: Half) -> None:
        self.name = resource_name(service.layout.resource_domain, family, half)
        self.state = service.state
        self._service, self._family, self._half = service, family, half

    def units(self) -> tuple[int, list[Unit]]:
        """See `ResourceOffer`."""
        return self._service.units(self._family, self._half)

    def prefer(
        self, available: Sequence[str], must_include: Sequence[str], count: int
    ) -> list[str]:
        """See `ResourceOffer`."""
        admission = self._service.admission
        return admission.prefer(self._family, self._half, available, must_include, count)

    def allocate(self, ids: Sequence[str]) -> Answer:
        """See `ResourceOffer`."""
        return self._service.admission.allocate(self._family, self._half, ids)

    def pre_start(self, ids: Sequence[str]) -> None:
        """See `ResourceOffer`."""
        self._service.starts.pre_start(self._family, self._half, ids)


class DeviceOffer:
    """One resource of whole devices or replicas."""

    def __init__(self, service: SliceService, name: str) -> None:
        self.name, self.state = name, service.state
        self._service = service

    def units(self) -> tuple[int, list[Unit]]:
        """See `ResourceOffer`."""
        return self._service.device_units(self.name)

    def prefer(
        self, available: Sequence[str], must_include: Sequence[str], count: int
    ) -> list[str]:
        """See `ResourceOffer`."""
        return self._service.devices.prefer(self.name, available, must_include, count)

    def allocate(self, ids: Sequence[str]) -> Answer:
        """See `ResourceOffer`."""
        return self._service.devices.allocate(self.name, ids)

    def pre_start(self, ids: Sequence[str]) -> None:
        """See `ResourceOffer`."""
        self._service.devices.pre_start(self.name, ids)
