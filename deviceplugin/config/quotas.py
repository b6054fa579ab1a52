"""``quotas``: how much of a family the pods of a namespace may hold in all, defaults included.

Pure: what the entries say. Of each family the first entry that is for a namespace counts; the
scheduler's extender holds pods against it.
"""

import re
from collections.abc import Iterable

from deviceplugin.model.quotas import Quota
from libvgpu.limits import Family
from libvgpu.places import Places
from libvgpu.sizes import Written, parse_percent

from . import schema
from .fractional import FAMILIES
from .values import size_bytes

#: The quota is of a whole cluster, so it is not bound by what one container can have.
_MOST_BYTES = 1 << 60
_MOST_CORE = 1_000_000_000
_NAMESPACE = re.compile(r"[a-z0-9*]([-a-z0-9*]{0,61}[a-z0-9*])?")


def quotas_of(entries: Iterable[schema.Quota], places: Places) -> tuple[Quota, ...]:
    """Returns what the entries say.

    Raises:
        ConfigError: a value that is not allowed, or a second entry for the same pods.
    """
    found: list[Quota] = []
    first: dict[tuple[str, Family], int] = {}
    for number, entry in enumerate(entries):
        path = f"$.quotas[{number}]"
        quota = _quota(entry, path, places)
        for family in quota.families:
            other = first.setdefault((quota.namespace, family), number)
            if other != number:
                raise places.error(
                    path,
                    f"{path[2:]} is for namespace {quota.namespace!r} and family "
                    f"{family.name.lower()}, which have a quota on line {found[other].line} "
                    "already; give one entry for both",
                )
        found.append(quota)
    return tuple(found)


def _quota(entry: schema.Quota, path: str, places: Places) -> Quota:
    if not _NAMESPACE.fullmatch(entry.namespace):
        raise places.error(
            f"{path}.namespace",
            f"{path[2:]}.namespace is {entry.namespace!r}, allowed are the names of namespaces, "
            "with * for any text",
        )
    if entry.family is not None:
        places.one_of(f"{path}.family", entry.family, FAMILIES)
    return Quota(
        namespace=entry.namespace,
        families=tuple(Family) if entry.family is None else (FAMILIES[entry.family],),
        core_units=_core_units(entry.core, f"{path}.core", places),
        memory_bytes=_memory_bytes(entry.memory, f"{path}.memory", places),
        path=path,
        line=places.line(path),
    )


def _memory_bytes(value: Written | None, path: str, places: Places) -> int | None:
    if value is None:
        return None
    # A size of nothing is a mistake elsewhere, and a ceiling here.
    return size_bytes(value, path, places, _MOST_BYTES, may_be_zero=True)


def _core_units(value: Written | None, path: str, places: Places) -> int | None:
    if value is None:
        return None
    percent = parse_percent(value)
    if percent is None or percent.whole is None or percent.whole > _MOST_CORE:
        raise places.error(
            path,
            f"{path[2:]} is {value!r}, allowed are 0 to {_MOST_CORE}: whole percent of one GPU, "
            "so that 400 is 4 GPUs",
        )
    return percent.whole
