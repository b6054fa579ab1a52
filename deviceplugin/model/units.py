"""Names of what the kubelet counts: ``<GPU-UUID>::c<n>`` is 1 % of a GPU, ``::m<n>`` a memory unit.

The GPU stands in every name, so any list of units tells on its own which GPU it is of; the halves
never share a name, since the kubelet looks up health by name alone.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family

CORE_UNITS_PER_GPU = 100
#: Of all GPUs together. The kubelet reads a list of at most 4 MiB, and with the longest names this
#: many units take less than half of it. A kubelet's request has most of them once more.
MOST_UNITS_PER_RESOURCE = 20_000
_UNIT = re.compile(r"([A-Za-z0-9-]{1,56})::([cm])(?:0|[1-9]\d{0,5})")
_SHOWN = 3  # units that a message names


class Half(StrEnum):
    """The two resources of a pair; the value ends the resource's name."""

    CORE = "core"
    MEMORY = "memory"

    @property
    def other(self) -> "Half":
        """The half that belongs to this one."""
        return Half.MEMORY if self is Half.CORE else Half.CORE


_LETTER = {Half.CORE: "c", Half.MEMORY: "m"}


def unit_name(uuid: str, half: Half, number: int | str) -> str:
    """Returns the name of one unit; with ``""`` for the number, how all of them begin."""
    return f"{uuid}::{_LETTER[half]}{number}"


def unit_number(unit: str) -> int:
    """Returns n of ``<UUID>::c<n>``."""
    return int(unit[unit.rindex(":") + 2 :])


def in_order(units: Iterable[str]) -> list[str]:
    """Returns units of one GPU and half by number: a shorter name has the smaller one."""
    return sorted(sorted(units), key=len)


def gpu_of(unit: str) -> str:
    """Returns the GPU's UUID in a unit's name."""
    return unit.rpartition("::")[0]


def half_of(unit: str) -> Half:
    """Returns which half a unit is of."""
    return Half.CORE if unit.rpartition("::")[2].startswith("c") else Half.MEMORY


def resource_name(domain: str, family: Family, half: Half) -> str:
    """Returns for example ``nvidia.com/vgpu-core``."""
    return f"{domain}/{family.name.lower()}-{half}"


def fraction_resources(domain: str) -> frozenset[str]:
    """Returns the names of the resources that are counted in units; others are of whole devices."""
    return frozenset(resource_name(domain, family, half) for family in Family for half in Half)


def shown(units: Iterable[str]) -> str:
    """Returns a few units as a message names them."""
    ordered = sorted(units)
    rest = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def gpus_of(half: Half, units: Iterable[str], what: str) -> dict[str, list[str]]:
    """Returns the units of each GPU.

    Args:
        half: which half they must be of.
        units: names as the kubelet sent them.
        what: the request, as the message names it.

    Raises:
        AllocationRefused: none, a name that is no unit of this half, or a name given twice.
    """
    listed = list(units)
    if not listed:
        raise AllocationRefused(f"{what} names no unit; ask for at least 1")
    found: dict[str, list[str]] = {}
    letter = _LETTER[half]
    for unit in listed:
        match = _UNIT.fullmatch(unit)
        if match is None or match[2] != letter:
            raise AllocationRefused(f"{what} names {unit[:80]!r}, which is not a unit of {half}")
        found.setdefault(match[1], []).append(unit)
    if len(set(listed)) != len(listed):
        raise AllocationRefused(f"{what} names a unit twice")
    return found
