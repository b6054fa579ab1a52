"""Admission of one pod against registered plugins, in the order the kubelet's device manager has.

Init containers first, then containers; within a container the resources of ``limits`` in random
order (the kubelet iterates a map), each of them wholly before the next: choose the units, then
Allocate. Units are chosen as follows: those of the pod's finished init containers first and at
random, then what GetPreferredAllocation answers (if the plugin offers it), then at random.
A unit counts as held before Allocate is called. What fails half-way keeps what it got until the
next sweep, as in the kubelet.

The caller serialises admissions; nothing here takes a lock.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from libvgpu.errors import AllocationRefused

from .plugin import Plugin, reason
from .pods import ContainerManifest, PodManifest


class AdmissionFailed(AllocationRefused):
    """The pod is not admitted (UnexpectedAdmissionError); the message carries the plugin's."""


@dataclass(slots=True)
class AdmittedContainer:
    """One container's units and the plugins' answers, by resource."""

    manifest: ContainerManifest
    init: bool
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answers: dict[str, pb.ContainerAllocateResponse] = field(default_factory=dict)


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


def admit_container(
    pod: AdmittedPod,
    manifest: ContainerManifest,
    init: bool,
    plugins: Mapping[str, Plugin],
    held: dict[str, set[str]],
    order: random.Random,
) -> None:
    """Allocates everything one container asks for and adds it to ``pod``.

    Args:
        pod: what was admitted of the pod so far; changed.
        manifest: the container.
        init: whether it is an init container, whose units later ones may reuse.
        plugins: registered plugin of each resource.
        held: units held per resource, of all known pods; changed.
        order: source of the random choices.

    Raises:
        AdmissionFailed: a resource is not registered, is used up, or its plugin refused.
    """
    container = AdmittedContainer(manifest, init)
    pod.containers.append(container)
    resources = [name for name, count in manifest.limits.items() if count > 0]
    order.shuffle(resources)
    for resource in resources:
        what = f"pod {pod.manifest.namespace}/{pod.manifest.name}, container {manifest.name}"
        plugin = plugins.get(resource)
        if plugin is None:
            known = ", ".join(sorted(plugins)) or "none"
            raise AdmissionFailed(
                f"{what}: cannot allocate unregistered device {resource}; registered are: {known}"
            )
        count = manifest.limits[resource]
        try:
            chosen = _choose(pod, plugin, count, held.setdefault(resource, set()), order)
            held[resource].update(chosen)
            container.answers[resource] = plugin.allocate(chosen)
            container.devices[resource] = tuple(chosen)  # from here podresources shows them
        except (grpc.RpcError, ValueError) as error:
            raise AdmissionFailed(
                f"{what}: Allocate of {count} {resource} failed: {reason(error)}"
            ) from error


def _choose(
    pod: AdmittedPod, plugin: Plugin, count: int, held: set[str], order: random.Random
) -> list[str]:
    healthy = {name for name, device in plugin.devices.items() if device.healthy}
    if not healthy:
        raise ValueError(f"no healthy devices present; cannot allocate {plugin.resource}")
    reusable = sorted(
        {unit for c in pod.containers if c.init for unit in c.devices.get(plugin.resource, ())}
        - {u for c in pod.containers if not c.init for u in c.devices.get(plugin.resource, ())}
    )
    order.shuffle(reusable)
    chosen = reusable[:count]
    if len(chosen) == count:
        return chosen
    free = sorted(healthy - held)
    if len(free) < count - len(chosen):
        raise ValueError(
            f"requested number of devices unavailable for {plugin.resource}: "
            f"requested {count}, available {len(free) + len(chosen)}"
        )
    if plugin.options.get_preferred_allocation_available:
        offered = [*chosen, *free]
        wanted = dict.fromkeys(plugin.prefer(offered, chosen, count))
        chosen += [unit for unit in wanted if unit in set(free)][: count - len(chosen)]
    rest = [unit for unit in free if unit not in set(chosen)]
    return chosen + order.sample(rest, count - len(chosen))
