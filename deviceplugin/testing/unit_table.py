"""Which units count as given away, as the kubelet keeps it besides its records of the containers.

A unit counts from the moment it is chosen, so before the plugin is asked and before any container
has it on record. The table is counted again from the records when pods with devices have ended, and
when an admission failed. A kubelet forgets units in flight at that moment and offers them again,
although a container is about to hold or holds them (kubernetes#137534); this one does so only where
it was asked to be as forgetful.

A lock of its own; taken last.
"""

from collections.abc import Iterable

from deviceplugin import runtime

from .records import AdmittedPod


class UnitTable:
    """Units given away, by resource."""

    def __init__(self, forgets_in_flight: bool = False) -> None:
        self._forgets = forgets_in_flight
        self._lock = runtime.lock()
        self._given: dict[str, set[str]] = {}
        self._in_flight: dict[str, set[str]] = {}

    def given(self, resource: str) -> set[str]:
        """Returns the units of a resource that are not offered."""
        with self._lock:
            return set(self._given.get(resource, ()))

    def take(self, resource: str, unit: str) -> None:
        """Counts a unit that is about to be given to a container."""
        with self._lock:
            self._given.setdefault(resource, set()).add(unit)
            self._in_flight.setdefault(resource, set()).add(unit)

    def landed(self, resource: str, units: Iterable[str]) -> None:
        """Notes that units in flight are on a container's record now."""
        with self._lock:
            self._in_flight.get(resource, set()).difference_update(units)

    def abandon(self) -> None:
        """Notes that what is in flight will never be on any record: its admission failed."""
        with self._lock:
            self._in_flight.clear()

    def count(self, pods: Iterable[AdmittedPod]) -> None:
        """Counts again from what the containers of ``pods`` have on record."""
        fresh: dict[str, set[str]] = {}
        for pod in pods:
            for container in pod.containers:
                for resource, units in list(container.devices.items()):
                    fresh.setdefault(resource, set()).update(units)
        with self._lock:
            if not self._forgets:
                for resource, in_flight in self._in_flight.items():
                    fresh.setdefault(resource, set()).update(in_flight)
            self._given = fresh
