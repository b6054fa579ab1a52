"""Whether a pod would take its namespace beyond its quota: pure.

What counts is what pods hold: the memory that comes with core alone, and of an init container only
what later ones do not take over. A quota is of bytes, since nodes may count in units of different
size; so how much a pod asks for depends on the node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deviceplugin.model.quotas import Quota, quota_of
from deviceplugin.scheduler.search.node_view import GpuRoom, Reservation
from libvgpu.limits import Family
from libvgpu.sizes import format_size


@dataclass(frozen=True, slots=True)
class Held:
    """What is held of one family."""

    core_units: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "Held") -> "Held":
        return Held(self.core_units + other.core_units, self.memory_bytes + other.memory_bytes)


#: What pods hold, of each family of which they hold anything.
Usage = Mapping[Family, Held]


def usage_of(gpus: Iterable[GpuRoom], reservation: Reservation) -> dict[Family, Held]:
    """Returns what a reservation comes to.

    Args:
        gpus: of the node.
    """
    found: dict[Family, Held] = {}
    for room in gpus:
        taken = reservation.gpus.get(room.uuid)
        if taken is not None:
            held = Held(taken.core, taken.memory * room.memory_unit_bytes)
            found[room.family] = found.get(room.family, Held()) + held
    return found


def added(usages: Iterable[Usage]) -> dict[Family, Held]:
    """Returns what several hold together."""
    found: dict[Family, Held] = {}
    for usage in usages:
        for family, held in usage.items():
            found[family] = found.get(family, Held()) + held
    return found


def has_quota(quotas: Iterable[Quota], namespace: str) -> bool:
    """Returns whether any quota is for a namespace."""
    quotas = tuple(quotas)
    return any(quota_of(quotas, namespace, family) is not None for family in Family)


def refusal(quotas: Iterable[Quota], namespace: str, used: Usage, asked: Usage) -> str | None:
    """Returns why a pod must not be bound, None where it may.

    Args:
        used: by the other pods of the namespace, those that are being bound included.
        asked: by this one on the node, see `usage_of`.
    """
    quotas = tuple(quotas)
    for family, asks in asked.items():
        quota = quota_of(quotas, namespace, family)
        if quota is None:
            continue
        has = used.get(family, Held())
        whose = f"namespace {namespace} in family {family.name.lower()}"
        both = has + asks
        core, memory = quota.core_units, quota.memory_bytes
        if core is not None and asks.core_units and both.core_units > core:
            return (
                f"quota of {whose}: {asks.core_units} core asked, {has.core_units} used of {core}"
            )
        if memory is not None and asks.memory_bytes and both.memory_bytes > memory:
            return (
                f"quota of {whose}: {format_size(asks.memory_bytes)} of memory asked, "
                f"{format_size(has.memory_bytes)} used of {format_size(memory)}"
            )
    return None
