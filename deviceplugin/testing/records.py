"""Pods that the stand-in has admitted, and what their containers were given."""

from dataclasses import dataclass, field

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb

from .pods import ContainerManifest, PodManifest


@dataclass(slots=True)
class AdmittedContainer:
    """One container's units and the plugins' answers, by resource.

    Attributes:
        init: it is one of the pod's init containers, plain or sidecar.
        running: it was started and its node has not been rebooted since.
        numa: NUMA nodes of each unit, as they were when it was given.
        unasked: a plugin that was not registered was not asked before its latest start.
    """

    manifest: ContainerManifest
    init: bool
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answers: dict[str, pb.ContainerAllocateResponse] = field(default_factory=dict)
    numa: dict[str, tuple[int, ...]] = field(default_factory=dict)
    running: bool = False
    unasked: bool = False

    @property
    def ends_first(self) -> bool:
        """It is a plain init container: later ones reuse its units, podresources leaves it out."""
        return self.init and not self.manifest.sidecar

    def forget(self) -> None:
        """Forgets what it was given."""
        self.devices, self.answers, self.numa = {}, {}, {}


@dataclass(slots=True)
class AdmittedPod:
    """One pod the kubelet knows; ``active`` until it has ended or failed admission."""

    manifest: PodManifest
    uid: str
    containers: list[AdmittedContainer] = field(default_factory=list)
    active: bool = True

    def container(self, name: str) -> AdmittedContainer:
        """Returns the container of that name.

        Raises:
            KeyError: there is none.
        """
        for container in self.containers:
            if container.manifest.name == name:
                return container
        raise KeyError(name)

    def held(self, resource: str) -> set[str]:
        """Returns the units of ``resource`` that any container of this pod holds."""
        return {unit for c in self.containers for unit in c.devices.get(resource, ())}

    def reusable(self, resource: str) -> set[str]:
        """Returns the units of plain init containers that no other container was given."""
        ended, kept = set[str](), set[str]()
        for container in self.containers:
            (ended if container.ends_first else kept).update(container.devices.get(resource, ()))
        return ended - kept
