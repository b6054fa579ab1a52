"""What the config says about GPUs and MIG devices that are given whole, or as replicas.

``flags.migStrategy``, ``resources`` and ``sharing.timeSlicing`` are NVIDIA's, with its meaning; a
few values of ours are next to them. Pure: `policy.devices.device_resources` holds them against the
GPUs.
"""

import re
from collections.abc import Iterable

from deviceplugin.model.device_match import NamePattern
from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE, Half, resource_name
from deviceplugin.model.whole_devices import (
    MOST_MPS_CLIENTS,
    MigStrategy,
    ReplicaKind,
    Replicas,
    Spread,
    TimeSlice,
    WholeDevices,
)
from libvgpu.limits import Family
from libvgpu.places import Places

from . import schema

SHARED_SUFFIX = ".shared"
#: NVIDIA's domain may be written in a file whose ``resourceDomain`` is another one.
_NVIDIA_DOMAIN = "nvidia.com"
_NAME_CHARACTERS = 63
_NAME = re.compile(rf"[a-z0-9]([-a-z0-9.]{{0,{_NAME_CHARACTERS - 2}}}[a-z0-9])?")
_FRACTIONS = frozenset(resource_name("", f, h).lstrip("/") for f in Family for h in Half)
_DEVICE = re.compile(r"\d+(:\d+)?|(GPU|MIG)-[0-9A-Za-z/-]+")


def whole_devices(file: schema.ConfigFile, places: Places) -> WholeDevices:
    """Returns what a file says of whole devices.

    Raises:
        ConfigError: a value that is not allowed.
    """
    flags, resources = file.flags or schema.Flags(), file.resources or schema.Resources()
    sharing = file.sharing or schema.Sharing()
    places.one_of("$.flags.migStrategy", flags.mig_strategy, MigStrategy)
    spread = flags.plugin.shared_devices_allocation_policy
    places.one_of("$.flags.plugin.sharedDevicesAllocationPolicy", spread, Spread)
    domains = (file.resource_domain, _NVIDIA_DOMAIN)
    gpu_names = _patterns(resources.gpus, "$.resources.gpus", domains, places)
    mig_names = (
        *_patterns(resources.migs, "$.resources.migs", domains, places),
        *_patterns(resources.mig, "$.resources.mig", domains, places),
    )
    replicas: list[Replicas] = []
    if sharing.time_slicing is not None:
        section = sharing.time_slicing
        path = "$.sharing.timeSlicing"
        places.one_of(f"{path}.strategy", section.strategy, [""])
        replicas += _replicas(
            ReplicaKind.TIME_SLICING, section, path, bool(section.fail_requests_greater_than_one),
            domains, places,
        )  # fmt: skip
        if section.time_slice is not None:
            places.one_of(f"{path}.timeSlice", section.time_slice, TimeSlice)
    if sharing.mps is not None:
        path = "$.sharing.mps"
        if sharing.mps.fail_requests_greater_than_one is False:
            raise places.error(
                f"{path}.failRequestsGreaterThanOne",
                "failRequestsGreaterThanOne is false in sharing.mps, allowed is true: a second "
                "replica would give a container no more of the GPU",
            )
        replicas += _replicas(ReplicaKind.MPS, sharing.mps, path, True, domains, places)
    first: dict[str, Replicas] = {}
    for entry in replicas:
        other = first.setdefault(entry.resource, entry)
        if other is not entry:
            raise places.error(
                f"{entry.path}.name",
                f"{entry.resource} is replicated on line {places.line(other.path)} already; "
                "give one entry per resource",
            )
    kinds: dict[str, Replicas] = {}
    for entry in replicas:
        other = kinds.setdefault(entry.advertised, entry)
        if other.kind is not entry.kind:
            raise places.error(
                f"{entry.path}.name",
                f"its replicas are called {entry.advertised}, as those on line "
                f"{places.line(other.path)}, which are shared in another way; give one of them "
                "another rename",
            )
    slice_said = sharing.time_slicing.time_slice if sharing.time_slicing else None
    return WholeDevices(
        mig_strategy=MigStrategy(flags.mig_strategy),
        gpu_names=gpu_names,
        mig_names=mig_names,
        replicas=tuple(replicas),
        spread=Spread(spread),
        time_slice=TimeSlice(slice_said) if slice_said is not None else None,
    )


def _patterns(
    entries: Iterable[schema.NamedPattern], path: str, domains: tuple[str, ...], places: Places
) -> tuple[NamePattern, ...]:
    return tuple(
        NamePattern(e.pattern, _name(e.name, f"{path}[{i}].name", domains, places))
        for i, e in enumerate(entries)
    )


def _name(value: str, path: str, domains: tuple[str, ...], places: Places) -> str:
    """Returns a resource's name without its domain."""
    domain, slash, name = value.rpartition("/")
    if (slash and domain not in domains) or not _NAME.fullmatch(name):
        raise places.error(
            path,
            f"{path[2:]} is {value!r}, which is not a resource of {domains[0]}: allowed are up to "
            f"{_NAME_CHARACTERS} lower-case letters, digits, '-' and '.', with {domains[0]}/ in "
            "front or without",
        )
    if name in _FRACTIONS:
        raise places.error(
            path,
            f"{path[2:]} is {value!r}, which is the name of a fraction's resource; choose another",
        )
    return name


def _replicas(
    kind: ReplicaKind,
    section: schema.Replicated,
    path: str,
    refuses: bool,
    domains: tuple[str, ...],
    places: Places,
) -> list[Replicas]:
    if not section.resources:
        raise places.error(
            path, f"{path[2:]} names no resources; give at least one, such as {domains[0]}/gpu"
        )
    found = []
    for number, entry in enumerate(section.resources):
        at = f"{path}.resources[{number}]"
        name = _name(entry.name, f"{at}.name", domains, places)
        if entry.replicas < 2:
            raise places.error(
                f"{at}.replicas",
                f"{at[2:]}.replicas is {entry.replicas}, allowed is 2 or more",
            )
        if entry.replicas > MOST_UNITS_PER_RESOURCE:
            raise places.error(
                f"{at}.replicas",
                f"{at[2:]}.replicas is {entry.replicas}, allowed are 2 to "
                f"{MOST_UNITS_PER_RESOURCE}: a kubelet reads no more in one message, those of all "
                "GPUs counted",
            )
        if kind is ReplicaKind.MPS and entry.replicas > MOST_MPS_CLIENTS:
            raise places.error(
                f"{at}.replicas",
                f"{at[2:]}.replicas is {entry.replicas}, allowed are 2 to {MOST_MPS_CLIENTS}: MPS "
                "takes no more clients on a GPU",
            )
        if entry.rename:
            advertised = _name(entry.rename, f"{at}.rename", domains, places)
        else:
            advertised = name + SHARED_SUFFIX * section.rename_by_default
            if len(advertised) > _NAME_CHARACTERS:
                raise places.error(
                    f"{at}.name",
                    f"{path[2:]}.renameByDefault makes {advertised!r} of {at[2:]}.name, which has "
                    f"{len(advertised)} characters, allowed are {_NAME_CHARACTERS}; give rename",
                )
        devices = _devices(entry.devices, f"{at}.devices", places)
        found.append(Replicas(kind, name, advertised, entry.replicas, devices, refuses, at))
    return found


def _devices(
    value: str | int | list[str | int], path: str, places: Places
) -> int | tuple[str, ...] | None:
    if isinstance(value, str):
        places.one_of(path, value, ("all", "a number of devices", "a list of devices"))
        return None
    if isinstance(value, int):
        if value < 1:
            raise places.error(path, f"{path[2:]} is {value}, allowed is 1 or more")
        return value
    if not value:
        raise places.error(path, f"{path[2:]} is an empty list; name a device, or say all")
    for number, device in enumerate(value):
        if not _DEVICE.fullmatch(str(device)):
            raise places.error(
                f"{path}[{number}]",
                f"{device!r} is not a device: allowed are an index, <index>:<MIG index>, and a "
                "UUID that begins with GPU- or MIG-",
            )
    return tuple(str(device) for device in value)
