"""Whether the kubelet's checkpoint alone shows that a container may start. Pure.

It is asked while podresources does not answer. The kubelet writes it when a container has all its
devices, so before its start.
"""

from collections.abc import Callable
from dataclasses import replace

from deviceplugin.model.units import shown

from .kubelet_checkpoint import CheckpointReading, KubeletEntry
from .kubelet_records import allocation_of


def unconfirmed(
    reading: CheckpointReading, allocation_id: str, units: frozenset[str]
) -> str | None:
    """Returns why the checkpoint alone does not show that a container may start with an allocation,
    None where it does: it gives the units to the allocation's container and to no other pod's.

    Args:
        units: of one resource, that the container is to start with.
    """
    return _unconfirmed(
        reading,
        f"allocation {allocation_id}",
        units,
        lambda entry: allocation_of(entry) == allocation_id,
    )


def unconfirmed_devices(
    reading: CheckpointReading, resource: str, device_ids: frozenset[str]
) -> str | None:
    """The same for devices that are given whole or as replicas, which have no allocation."""
    ours = [entry for entry in reading.entries if entry.resource == resource]
    what = f"{shown(sorted(device_ids))} of {resource}"
    return _unconfirmed(replace(reading, entries=tuple(ours)), what, device_ids, lambda _: True)


def _unconfirmed(
    reading: CheckpointReading,
    what: str,
    ids: frozenset[str],
    is_its: Callable[[KubeletEntry], bool],
) -> str | None:
    if reading.problem is not None:
        return reading.problem
    entries = [e for e in reading.entries if reading.pods is None or e.pod_uid in reading.pods]
    mine = {e.pod_uid for e in entries if is_its(e) and ids <= set(e.units)}
    if not mine:
        return f"the kubelet's checkpoint gives {what} to no container of a pod that is there"
    if len(mine) > 1:
        return f"the kubelet's checkpoint gives {what} to the pods {' and '.join(sorted(mine))}"
    for entry in entries:
        both = ids.intersection(entry.units)
        if both and entry.pod_uid not in mine:
            return (
                f"{shown(sorted(both))} of {what} are on record for container {entry.container} "
                f"of pod {entry.pod_uid}, too"
            )
    return None
