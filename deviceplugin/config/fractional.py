"""``sharing.fractional``: which GPUs and MIG devices are shared in fractions, and how.

Pure: what the entries say, checked as far as that goes without looking at the GPUs;
`policy.devices.layout` holds it against them.
"""

import re
from collections.abc import Iterator, Mapping

from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.device_match import ANY_DEVICE, DeviceMatch, NamePattern
from deviceplugin.model.fractional import UNIT_STEP_BYTES, FractionalEntry, LoneHalves, Placement
from libvgpu.limits import ComputeMode, Family
from libvgpu.places import Places

from . import schema
from .values import compute_mode, size_bytes

FAMILIES = {"mps": Family.MPS, "vgpu": Family.VGPU}
_MIG_PROFILE = re.compile(r"(\d+c\.)?\d+g\.\d+gb([+.-][a-z.+-]+)?")


def _concurrency(value: str | None, family: Family, path: str, places: Places) -> Concurrency:
    if value is None:
        return Concurrency.TIME_SLICES
    if family is not Family.VGPU:
        raise places.error(
            path,
            f"concurrency {value!r} cannot be set for family {family.name.lower()}: its containers "
            "are clients of one MPS server in any case; leave it out, or use family vgpu, where "
            f"{' and '.join(Concurrency)} are allowed",
        )
    places.one_of(path, value, Concurrency)
    return Concurrency(value)


def fractional_entries(
    entries: list[schema.Fractional], places: Places
) -> tuple[FractionalEntry, ...]:
    """Returns what the entries say.

    Raises:
        ConfigError: a value that is not allowed, or two entries that contradict each other.
    """
    found: list[FractionalEntry] = []
    first: dict[Family, FractionalEntry] = {}
    named: dict[int | str, FractionalEntry] = {}
    for number, entry in enumerate(entries):
        path = f"$.sharing.fractional[{number}]"
        places.one_of(f"{path}.family", entry.family, FAMILIES)
        family = FAMILIES[entry.family]
        mode = compute_mode(entry.compute, f"{path}.compute", places)
        if mode is not None and family is Family.MPS:
            raise places.error(
                f"{path}.compute",
                "compute belongs to family vgpu; in family mps the MPS daemon holds the share",
            )
        for key, factor in (
            ("memoryOvercommit", entry.memory_overcommit),
            ("coreOvercommit", entry.core_overcommit),
        ):
            if factor != 1.0:
                raise places.error(
                    f"{path}.{key}", f"{key} is {factor}; only 1.0 is served yet (no overcommit)"
                )
        unit_bytes = size_bytes(entry.memory_unit, f"{path}.memoryUnit", places)
        if unit_bytes % UNIT_STEP_BYTES:
            raise places.error(
                f"{path}.memoryUnit", f"memoryUnit {entry.memory_unit!r} is not a multiple of 1Mi"
            )
        places.one_of(f"{path}.placement", entry.placement, Placement)
        placement = Placement(entry.placement)
        places.one_of(f"{path}.loneHalves", entry.lone_halves, LoneHalves)
        if family in first:
            _check_alike(entry, unit_bytes, first[family], path, places)
        if entry.match is None:  # of entries with a match, the first that fits a device has it
            for device, other in _shared_already(entry.devices, named):
                raise places.error(
                    f"{path}.devices",
                    f"GPU {device} is already shared on line {places.line(other.path)}; "
                    "a GPU belongs to one entry and one family",
                )
        devices = device_names(entry.devices, f"{path}.devices", places)
        held = ComputeMode.STRICT if mode is None else mode
        concurrency = _concurrency(entry.concurrency, family, f"{path}.concurrency", places)
        match = device_match(entry.match, f"{path}.match", places)
        made = FractionalEntry(
            family, devices, unit_bytes, held, path, placement, concurrency, match,
            LoneHalves(entry.lone_halves),
        )  # fmt: skip
        found.append(made)
        first.setdefault(family, made)
        if match.is_open:
            named.update(dict.fromkeys(("all",) if devices is None else devices, made))
    return tuple(found)


def _check_alike(
    entry: schema.Fractional,
    unit_bytes: int,
    first: FractionalEntry,
    path: str,
    places: Places,
) -> None:
    """Holds an entry against the first of its family, with which it has to agree."""
    if first.placement != entry.placement:
        raise places.error(
            f"{path}.placement",
            f"family {entry.family} has placement {entry.placement} here and another on "
            f"line {places.line(first.path)}; give one placement per family",
        )
    if first.lone_halves != entry.lone_halves:
        raise places.error(
            f"{path}.loneHalves",
            f"family {entry.family} has loneHalves {entry.lone_halves} here and another on "
            f"line {places.line(first.path)}; say it in each entry of the family",
        )
    if first.memory_unit_bytes != unit_bytes:
        raise places.error(
            f"{path}.memoryUnit",
            f"family {entry.family} has memoryUnit {entry.memory_unit} here and another on "
            f"line {places.line(first.path + '.memoryUnit')}; give one unit per family",
        )


def device_match(match: schema.DeviceMatch | None, path: str, places: Places) -> DeviceMatch:
    """Returns what a ``match`` of devices says.

    Raises:
        ConfigError: a value that is not allowed, or it selects nothing.
    """
    if match is None:
        return ANY_DEVICE
    least, most = (
        None if size is None else size_bytes(size, f"{path}.{key}", places)
        for key, size in (("minMemory", match.min_memory), ("maxMemory", match.max_memory))
    )
    product = None if match.product == "*" else NamePattern(match.product, "")
    found = DeviceMatch(product, least, most, match.mig)
    if found.is_open:
        raise places.error(
            path,
            f"{path[2:]} selects nothing; give product, minMemory, maxMemory or mig, or leave it "
            "out",
        )
    if isinstance(match.mig, str) and not _MIG_PROFILE.fullmatch(match.mig):
        raise places.error(
            f"{path}.mig",
            f"{path[2:]}.mig is {match.mig!r}, allowed are true, false and a profile such as "
            "1g.5gb",
        )
    return found


def _shared_already(
    devices: str | list[int | str], named: Mapping[int | str, FractionalEntry]
) -> Iterator[tuple[int | str, FractionalEntry]]:
    """Yields the devices that entries before name, as far as that shows without the GPUs."""
    if isinstance(devices, str):
        yield from named.items()
        return
    for device in devices:
        other = named.get(device) or named.get("all")
        if other is not None:
            yield device, other


def device_names(
    value: str | list[int | str], path: str, places: Places
) -> tuple[int | str, ...] | None:
    """Returns the devices that a list names, None for all.

    Raises:
        ConfigError: a value that is not allowed.
    """
    if isinstance(value, str):
        places.one_of(path, value, ("all", "a list of GPU indexes or UUIDs"))
        return None
    if not value:
        raise places.error(path, f"{path[2:]} is an empty list; name a GPU index or UUID, or all")
    seen: set[int | str] = set()
    for number, device in enumerate(value):
        if isinstance(device, int) and device < 0:
            raise places.error(f"{path}[{number}]", f"GPU index {device} is below 0")
        if device in seen:
            raise places.error(f"{path}[{number}]", f"GPU {device} is named twice in {path[2:]}")
        seen.add(device)
    return tuple(value)
