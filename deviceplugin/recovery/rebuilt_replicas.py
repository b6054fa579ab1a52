"""Replicas under MPS made again from the record of the kubelet, where our checkpoint lacks them.

Their units follow from the replica's name and the config, so the record of one entry is enough.
What the config does not divide in this way any more is told and left out, and so is a replica that
two pods have: one of them has ended, and the kubelet writes its record again before long.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.whole_devices import ReplicaKind
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.devices.mps_replicas import replica_allocation
from libvgpu.allocation_dirs import AllocationMeta
from libvgpu.errors import AllocationRefused

from .kubelet_checkpoint import KubeletEntry
from .kubelet_records import allocation_of, build_of


def rebuild_replicas(
    entries: Iterable[KubeletEntry],
    metas: Mapping[str, AllocationMeta],
    layout: Layout,
    known: Iterable[Allocation],
) -> tuple[list[Allocation], list[str]]:
    """Returns the allocations that the kubelet has on record and ``known`` lacks, and what is wrong
    with others, as sentences.

    Args:
        metas: what the run directory says, by allocation id.
        layout: what the config wants.
        known: what our own checkpoint names.
    """
    ids = {allocation.allocation_id for allocation in known}
    found: list[Allocation] = []
    problems: list[str] = []
    recorded = [e for e in entries if _is_replica(e, layout) and allocation_of(e) not in ids]
    pods: dict[str, set[str]] = {}
    for entry in recorded:
        for replica in entry.units:
            pods.setdefault(replica, set()).add(entry.pod_uid)
    for entry in recorded:
        whose = f"{entry.resource} of container {entry.container} of pod {entry.pod_uid}"
        if any(len(pods[replica]) > 1 for replica in entry.units):
            problems.append(f"{whose} is left out: another pod is on record with it, too")
            continue
        try:
            found.append(_allocation(entry, metas, layout))
        except AllocationRefused as why:
            problems.append(f"{whose} is left out: {why}")
    return found, problems


def _is_replica(entry: KubeletEntry, layout: Layout) -> bool:
    resource = layout.resource(entry.resource)
    is_divided = resource is not None and resource.kind is ReplicaKind.MPS
    return is_divided and allocation_of(entry) is not None


def _allocation(
    entry: KubeletEntry, metas: Mapping[str, AllocationMeta], layout: Layout
) -> Allocation:
    allocation_id, resource = allocation_of(entry), layout.resource(entry.resource)
    assert allocation_id is not None and resource is not None
    made = replica_allocation(layout, resource, entry.units, 0.0, allocation_id)
    meta = metas.get(allocation_id)
    is_its = meta is not None and meta.pod and meta.container == entry.container
    owner = Owner(meta.namespace, meta.pod, meta.container) if meta and is_its else None
    return replace(
        made,
        shim_build=build_of(entry),
        owner=owner,
        changed_at=meta.created_at if meta is not None else 0.0,
    )
