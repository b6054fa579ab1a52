"""Allocations as the kubelet has them on record: its entries, put together by allocation. Pure.

The kubelet keeps for each container and resource the units and our answer (`kubelet_checkpoint`).
The answer mounts `limits` out of the allocation's directory and the library out of its build's, so
it names both; core and memory of one container name the same directory.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from deviceplugin.model.held_devices import HeldDevice
from deviceplugin.model.units import (
    CORE_UNITS_PER_GPU,
    Half,
    fraction_resources,
    gpu_of,
    resource_name,
    shown,
    unit_name,
    unit_number,
)
from deviceplugin.store.shim_builds import CONTAINER_DIRECTORY
from deviceplugin.store.slice_files import container_shim_path
from libvgpu.limits import Family

from .kubelet_checkpoint import CheckpointReading, KubeletEntry

LIMITS_MOUNT = f"{CONTAINER_DIRECTORY}/limits"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class RecordDisagrees(Exception):  # noqa: N818 - the sentence that says it
    """Why an allocation cannot be made out of its records."""


@dataclass(slots=True)
class KubeletRecord:
    """What the kubelet has under one allocation id; ``entries`` with their family and half."""

    allocation_id: str
    entries: list[tuple[KubeletEntry, Family, Half]] = field(default_factory=list)

    @property
    def all_units(self) -> frozenset[str]:
        """Every unit on record."""
        return frozenset(unit for entry, _, _ in self.entries for unit in entry.units)

    @property
    def pods(self) -> frozenset[str]:
        """The uids of the pods that name it: one, unless something went wrong."""
        return frozenset(entry.pod_uid for entry, _, _ in self.entries)

    @property
    def containers(self) -> frozenset[str]:
        """The names of the containers that name it."""
        return frozenset(entry.container for entry, _, _ in self.entries)

    @property
    def build(self) -> str:
        """The build of the library that its answers mount, empty where they mount none."""
        return next((build for entry, _, _ in self.entries if (build := build_of(entry))), "")

    def family(self) -> Family:
        """Returns the one family of its resources.

        Raises:
            RecordDisagrees: there are two.
        """
        families = {family for _, family, _ in self.entries}
        if len(families) > 1:
            raise RecordDisagrees("it has units of both families")
        return families.pop()

    def units(self) -> dict[Half, tuple[str, ...]]:
        """Returns the units of each half that it has.

        Raises:
            RecordDisagrees: a half twice, or names that are no units of it.
        """
        found: dict[Half, tuple[str, ...]] = {}
        for entry, _, half in self.entries:
            if half in found:
                raise RecordDisagrees(f"it has {half} twice")
            wrong = [unit for unit in entry.units if not is_unit(unit, half)]
            if wrong or not entry.units:
                raise RecordDisagrees(f"{shown(wrong) or 'nothing'} is not a unit of {half}")
            found[half] = entry.units
        return found

    def described(self) -> str:
        """Returns which allocation of whom it is, as a message names it."""
        whose = sorted({f"{e.container} of pod {e.pod_uid}" for e, _, _ in self.entries})
        return f"allocation {self.allocation_id} of container {' and '.join(whose)}"


def by_allocation(
    entries: Iterable[KubeletEntry], domain: str
) -> tuple[dict[str, KubeletRecord], list[KubeletEntry]]:
    """Returns the allocations on record by id, and the entries of our resources that name none.

    Args:
        entries: of the kubelet's checkpoint; other resources' are passed over.
        domain: of our resources.
    """
    resources = {resource_name(domain, f, h): (f, h) for f in Family for h in Half}
    found: dict[str, KubeletRecord] = {}
    strays = []
    for entry in entries:
        if entry.resource not in resources:
            continue
        allocation_id = allocation_of(entry)
        if allocation_id is None:
            strays.append(entry)
            continue
        recorded = found.setdefault(allocation_id, KubeletRecord(allocation_id))
        recorded.entries.append((entry, *resources[entry.resource]))
    return found, strays


def devices_on_record(reading: CheckpointReading, domain: str) -> list[HeldDevice]:
    """Returns who has devices whole or as replicas, by the kubelet's checkpoint.

    Where the kubelet keeps directories of pods, only those of pods that have one: it keeps pods
    that have ended in the file until that is next written.
    """
    fractions = fraction_resources(domain)
    return [
        HeldDevice(entry.resource, each)
        for entry in reading.entries
        if entry.resource not in fractions
        and (reading.pods is None or entry.pod_uid in reading.pods)
        for each in entry.units
    ]


def allocation_of(entry: KubeletEntry) -> str | None:
    """Returns the allocation whose files an entry's answer mounts, None where it mounts none."""
    parent = PurePosixPath(entry.mounts.get(LIMITS_MOUNT, "")).parent
    fits = parent.parent.name == "allocations" and _ID.fullmatch(parent.name)
    return parent.name if fits else None


def conflict(entries: Iterable[KubeletEntry], allocation_id: str) -> str | None:
    """Returns why nothing may start with an allocation, None where something may.

    podresources shows no plain init containers; the kubelet's checkpoint does.
    """
    containers: dict[tuple[str, str], set[str]] = {}
    for entry in entries:
        named = allocation_of(entry)
        if named is not None:
            containers.setdefault((entry.pod_uid, entry.container), set()).add(named)
    mine = {whose: ids for whose, ids in containers.items() if allocation_id in ids}
    for (pod_uid, container), ids in mine.items():
        who = f"container {container} of pod {pod_uid}"
        if len(ids) > 1:
            return (
                f"{who} has parts of the allocations {' and '.join(sorted(ids))}; a container "
                "has one slice, so ask for both halves of one family in each container of the pod"
            )
        if len(mine) > 1:
            names = " and ".join(sorted(name for _, name in mine))
            return (
                f"core and memory of allocation {allocation_id} went to different containers, "
                f"{names} of pod {pod_uid}; each must ask for both halves, or one at a time"
            )
    return None


def build_of(entry: KubeletEntry) -> str:
    """Returns the build of the library that an entry's answer mounts, empty where it is none."""
    for path in entry.mounts:
        build = PurePosixPath(path).parent.name
        if path == container_shim_path(build):
            return build
    return ""


def is_unit(unit: str, half: Half) -> bool:
    """Returns whether ``unit`` is the name of a unit of ``half``."""
    try:
        number = unit_number(unit)
    except ValueError:
        return False
    in_range = number >= 0 and (half is Half.MEMORY or number < CORE_UNITS_PER_GPU)
    return in_range and unit_name(gpu_of(unit), half, number) == unit
