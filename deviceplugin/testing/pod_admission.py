"""PodAdmission of one container against registered plugins, in the order the kubelet has.

Init containers first, then containers; within a container the resources of ``limits`` in random
order (the kubelet iterates a map), each of them wholly before the next: choose the units, then
Allocate. What fails half-way keeps what it got until the next sweep, as in the kubelet.

A container that is admitted again, since the kubelet was restarted, passes if it is running, and
else with the units that it has on record if they are healthy.

The caller serialises admissions; nothing here takes a lock.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc

from libvgpu.errors import AllocationRefused

from .plugin_client import Plugin, reason
from .records import AdmittedContainer, AdmittedPod
from .selection import choose
from .unit_table import UnitTable


class AdmissionFailed(AllocationRefused):
    """The pod is not admitted (UnexpectedAdmissionError); the message carries the plugin's."""


@dataclass(frozen=True, slots=True)
class PodAdmission:
    """What admissions work with.

    Attributes:
        plugins: the registered plugins by resource, now.
        known: whether a resource was registered before the kubelet was restarted.
        look: frees the units of pods that have ended.
        order: source of the random choices.
    """

    plugins: Callable[[], Mapping[str, Plugin]]
    known: Callable[[str], bool]
    look: Callable[[], None]
    table: UnitTable
    order: random.Random

    def admit(self, pod: AdmittedPod, container: AdmittedContainer) -> bool:
        """Allocates everything that a container of ``pod`` asks for and lacks.

        Returns:
            Whether it was given anything.

        Raises:
            AdmissionFailed: a resource is not registered, is used up, or its plugin refused.
        """
        limits = {name: count for name, count in container.manifest.limits.items() if count > 0}
        resources = list(limits)
        self.order.shuffle(resources)
        if resources:
            self.look()
        given = False
        for resource in resources:
            try:
                if not self._has_already(container, resource, limits[resource]):
                    self._allocate(pod, container, resource, limits[resource])
                    given = True
            except (grpc.RpcError, ValueError) as error:
                raise AdmissionFailed(
                    f"{described(pod, container)}: Allocate of {limits[resource]} {resource} "
                    f"failed: {reason(error)}"
                ) from error
        return given

    def _has_already(self, container: AdmittedContainer, resource: str, count: int) -> bool:
        units = container.devices.get(resource)
        if units is not None and len(units) != count:
            raise ValueError(f"changed request for resource {resource}: {len(units)} to {count}")
        if container.running:
            return True
        if units is None:
            return False
        plugin = self._plugin(resource)
        healthy = {name for name, device in plugin.devices.items() if device.healthy}
        if not healthy:
            raise ValueError(f"no healthy devices present; cannot allocate {resource}")
        if not healthy.issuperset(units):
            raise ValueError(
                f"previously allocated devices are no longer healthy; cannot allocate {resource}"
            )
        return True

    def _allocate(
        self, pod: AdmittedPod, container: AdmittedContainer, resource: str, count: int
    ) -> None:
        plugin = self._plugin(resource)
        chosen = choose(plugin, count, pod.reusable(resource), self.table, self.order)
        container.answers[resource] = plugin.allocate(chosen)
        devices = plugin.devices
        container.numa.update((u, devices[u].numa_nodes) for u in chosen if u in devices)
        container.devices[resource] = tuple(chosen)  # from here podresources shows them
        self.table.landed(resource, chosen)

    def _plugin(self, resource: str) -> Plugin:
        plugins = self.plugins()
        if resource in plugins:
            return plugins[resource]
        if self.known(resource):
            raise ValueError(f"no healthy devices present; cannot allocate {resource}")
        there = ", ".join(sorted(plugins)) or "none"
        raise ValueError(f"cannot allocate unregistered device {resource}; registered are: {there}")


def described(pod: AdmittedPod, container: AdmittedContainer) -> str:
    """Returns which container it is, as a message says it."""
    names = f"{pod.manifest.namespace}/{pod.manifest.name}"
    return f"pod {names}, container {container.manifest.name}"
