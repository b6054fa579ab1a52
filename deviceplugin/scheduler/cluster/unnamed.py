"""Matches what an inventory shows without a name with the pods that wait to be shown.

An agent writes that a slice is held before it knows whose it is. The pod of that slice still has
its reservation, and both together would take the room of two. So what is unnamed is matched with
pods that wait to be shown: a slice with one container's amounts on the GPUs that its pod was
promised, a device with any pod that was promised one of that resource. A slice on another GPU
matches nobody.

Each slice and device is matched once. If two pods of the same amounts wait and one slice is there,
then two are counted, whoever of them has it.

Not synchronised: `NodeBook` makes a new `Unnamed` for each look.
"""

from collections.abc import Mapping

from deviceplugin.model.pod_requests import ContainerRequest, PodRequest
from deviceplugin.pages.published import PublishedNode, PublishedSlice
from deviceplugin.scheduler.search.node_view import Reservation, Taken
from libvgpu.limits import Family

from .reserving import amounts_on


class Unnamed:
    """What of an inventory has no name and is matched with no pod yet."""

    def __init__(self, published: PublishedNode) -> None:
        """Takes all that has no name."""
        self._domain = published.domain
        self._gpus = {each.uuid: each for each in published.gpus}
        self._slices = [each for each in published.slices if each.pod is None]
        self._devices = {each.name: each.pods.count(("", "")) for each in published.resources}

    def rest_of(self, request: PodRequest, reservation: Reservation) -> Reservation:
        """Returns what of a pod's reservation the inventory does not show at all."""
        return self._split(request, reservation)[0]

    def take(self, request: PodRequest, reservation: Reservation) -> Reservation:
        """Returns the same; what is shown of it matches no other pod from now on."""
        rest, matched = self._split(request, reservation)
        self._slices = [each for each in self._slices if each.id not in matched]
        for name, count in reservation.devices.items():
            self._devices[name] = self._devices.get(name, 0) - (count - rest.devices[name])
        return rest

    def _split(self, request: PodRequest, reservation: Reservation) -> tuple[Reservation, set[str]]:
        gpus, matched = dict(reservation.gpus), set[str]()
        for each in self._slices:
            if self._is_of(each, request, gpus):
                matched.add(each.id)
                for uuid, (core, memory) in each.units.items():
                    rest = gpus[uuid]
                    # Two halves of one container may come as two slices.
                    containers = max(0, rest.containers - 1)
                    gpus[uuid] = Taken(rest.core - core, rest.memory - memory, containers)
        devices = {
            name: count - min(count, self._devices.get(name, 0))
            for name, count in reservation.devices.items()
        }
        return Reservation(gpus, devices), matched

    def _is_of(self, held: PublishedSlice, request: PodRequest, rest: Mapping[str, Taken]) -> bool:
        """Returns whether a slice is what a container of a pod was promised, or one half of it."""
        return all(
            uuid in rest and core <= rest[uuid].core and memory <= rest[uuid].memory
            for uuid, (core, memory) in held.units.items()
        ) and any(
            self._has_amounts(held, container, family)
            for container in request.containers
            for family in container.families(self._domain)
        )

    def _has_amounts(
        self, held: PublishedSlice, container: ContainerRequest, family: Family
    ) -> bool:
        """Returns whether a slice has a container's amounts on each GPU, or one half of them."""
        for uuid, units in held.units.items():
            gpu = self._gpus.get(uuid)
            if gpu is None or not any(units):
                return False
            asked = amounts_on(self._domain, container, family, gpu, len(held.units))
            if asked is None or any(
                has not in (0, most) for has, most in zip(units, asked.values(), strict=True)
            ):
                return False
        return True
