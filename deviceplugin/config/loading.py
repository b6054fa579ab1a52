"""The agent's config file, decoded strictly and checked as a whole.

Reading has two steps. `parse_config` needs no GPU: YAML -> schema (unknown keys and wrong types are
errors with key and line) -> the values themselves -> `AgentConfig`. `policy.layout.lay_out`
then holds it against the GPUs that are there. A file is taken whole or not at all.

Nothing here keeps state; every value is frozen and may be shared between threads.
"""

import difflib
import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from deviceplugin.model.concurrency import Concurrency
from libvgpu.errors import ConfigError, UsageError
from libvgpu.limits import ComputeMode, Family
from libvgpu.sizes import parse_size
from libvgpu.yamltext import Places, parse, read

from . import schema
from .device_forms import DeviceForms
from .flags import device_forms, flags_not_served

#: The container's memory limit is handed to MPS in MiB, so a unit is whole MiB.
UNIT_STEP_BYTES = 1 << 20
FAMILIES = {"mps": Family.MPS, "vgpu": Family.VGPU}
COMPUTE_MODES = {
    "strict": ComputeMode.STRICT,
    "elastic": ComputeMode.ELASTIC,
    "off": ComputeMode.OFF,
}


class Placement(StrEnum):
    """Which of several GPUs with room a fraction is put on."""

    BINPACK = "binpack"
    SPREAD = "spread"


class WatchPolicy(StrEnum):
    """What is done about a process that bypasses its slice."""

    REPORT = "report"
    TERMINATE = "terminate"


_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d+)?)\s?%")
_FIELD_AT = re.compile(r"^(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.S)
_NAMED_FIELD = re.compile(r"^Object (contains unknown|missing required) field `([^`]*)`")


@dataclass(frozen=True, slots=True)
class FractionalShare:
    """One entry of ``sharing.fractional``.

    Attributes:
        devices: GPU indexes or UUIDs; None means all GPUs.
        path: where it stands in the file, for messages.
        concurrency: of family vgpu; family mps has clients of MPS in any case.
    """

    family: Family
    devices: tuple[int | str, ...] | None
    memory_unit_bytes: int
    compute: ComputeMode
    path: str
    placement: Placement = Placement.BINPACK
    concurrency: Concurrency = Concurrency.TIME_SLICES


@dataclass(frozen=True, slots=True)
class LimitRule:
    """One entry of ``limits``: whom it meets and to what it changes their limits.

    Attributes:
        core_percent: of the GPU; None leaves it.
        core_share_of_asked: 0..1 of what the container asked; None leaves it.
        pod_labels: key and value of labels that the pod must all have.
        allow_raise: it and `vgpuctl set` may also raise, if the GPU has that much unallocated.
        line: on which line of the file it stands.
    """

    namespace: str = "*"
    container: str = "*"
    core_percent: int | None = None
    core_share_of_asked: float | None = None
    memory_bytes: int | None = None
    compute: ComputeMode | None = None
    pod_labels: tuple[tuple[str, str], ...] = ()
    allow_raise: bool = False
    path: str = ""
    line: int = 0

    @property
    def needs_labels(self) -> bool:
        """It matches only where somebody can tell a pod's labels."""
        return bool(self.pod_labels)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What a whole, good config file says.

    Attributes:
        forms: how containers are told which GPUs are theirs.
        watch: what is done about a process that bypasses its slice.
        not_served: what the file asks for and the agent does not do yet, as sentences.
        fail_on_init_error: where NVML lists nothing at the start, the agent ends, else waits.
        digest: hash of the text, to tell one version of the file from another.
    """

    resource_domain: str
    shares: tuple[FractionalShare, ...]
    rules: tuple[LimitRule, ...]
    forms: DeviceForms
    not_served: tuple[str, ...]
    digest: str
    text: str
    places: Places
    watch: WatchPolicy = WatchPolicy.REPORT
    fail_on_init_error: bool = True


def load_config(path: Path) -> AgentConfig:
    """Reads and checks a config file.

    Raises:
        ConfigError: one sentence with file, line, value and what is allowed.
    """
    return parse_config(read(path), str(path))


def parse_config(text: str, name: str = "config") -> AgentConfig:
    """Returns what a config text says.

    Args:
        text: the whole file.
        name: what to call it in messages.

    Raises:
        ConfigError: one sentence with file, line, value and what is allowed.
    """
    data, places = parse(text, name)
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: the file must be a mapping that begins with version: v1")
    file = _decode(data, places)
    if file.version != "v1":
        raise places.error("$.version", f"version is {file.version!r}, allowed is: v1")
    if not _DOMAIN.fullmatch(file.resource_domain):
        raise places.error(
            "$.resourceDomain",
            f"resourceDomain {file.resource_domain!r} is not a domain name like nvidia.com",
        )
    sharing = file.sharing or schema.Sharing()
    places.one_of("$.watch.unaccounted", file.watch.unaccounted, WatchPolicy)
    return AgentConfig(
        resource_domain=file.resource_domain,
        shares=_shares(sharing.fractional, places),
        rules=tuple(_rule(r, f"$.limits[{i}]", places) for i, r in enumerate(file.limits)),
        forms=device_forms(file.flags or schema.Flags(), places),
        not_served=tuple(_not_served(file, sharing, places)),
        text=text,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        places=places,
        watch=WatchPolicy(file.watch.unaccounted),
        fail_on_init_error=(file.flags or schema.Flags()).fail_on_init_error,
    )


def _decode(data: Any, places: Places) -> schema.ConfigFile:
    try:
        return msgspec.convert(data, type=schema.ConfigFile)
    except msgspec.ValidationError as error:
        match = _FIELD_AT.match(str(error))
        text, path = (match["text"], match["path"] or "$") if match else (str(error), "$")
    named = _NAMED_FIELD.match(text)
    if named is None:
        expected = text.replace("`", "").replace("Expected ", "must be ").replace("got", "not")
        raise places.error(path, f"{path[2:] or 'the file'} {expected}")
    where, key = path[2:] or "the file", named[2]
    if named[1] == "missing required":
        raise places.error(path, f"{where} lacks the key {key!r}")
    steps = [int(i) if i else k for k, i in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path)]
    allowed = schema.allowed_keys(steps)
    near = difflib.get_close_matches(key, allowed, 1)
    hint = f"did you mean {near[0]!r}?" if near else None
    raise places.error(
        f"{path}.{key}", f"unknown key {key!r} in {where}; allowed are: {', '.join(allowed)}", hint
    )


def _compute(value: str | bool | None, path: str, places: Places) -> ComputeMode | None:
    if value is None:
        return None
    word = "off" if value is False else str(value)
    places.one_of(path, word, COMPUTE_MODES)
    return COMPUTE_MODES[word]


def _size(value: str | int, path: str, places: Places) -> int:
    try:
        return parse_size(str(value), path[2:])
    except UsageError as error:
        raise places.error(path, error.message) from None


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


def _shares(entries: list[schema.Fractional], places: Places) -> tuple[FractionalShare, ...]:
    shares: list[FractionalShare] = []
    for number, entry in enumerate(entries):
        path = f"$.sharing.fractional[{number}]"
        places.one_of(f"{path}.family", entry.family, FAMILIES)
        family = FAMILIES[entry.family]
        mode = _compute(entry.compute, f"{path}.compute", places)
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
        unit_bytes = _size(entry.memory_unit, f"{path}.memoryUnit", places)
        if unit_bytes % UNIT_STEP_BYTES:
            raise places.error(
                f"{path}.memoryUnit", f"memoryUnit {entry.memory_unit!r} is not a multiple of 1Mi"
            )
        places.one_of(f"{path}.placement", entry.placement, Placement)
        placement = Placement(entry.placement)
        for other in shares:
            if other.family is family and other.placement is not placement:
                raise places.error(
                    f"{path}.placement",
                    f"family {entry.family} has placement {entry.placement} here and another on "
                    f"line {places.line(other.path)}; give one placement per family",
                )
            if other.family is family and other.memory_unit_bytes != unit_bytes:
                raise places.error(
                    f"{path}.memoryUnit",
                    f"family {entry.family} has memoryUnit {entry.memory_unit} here and another on "
                    f"line {places.line(other.path + '.memoryUnit')}; give one unit per family",
                )
            for device in _common(other.devices, entry.devices):
                raise places.error(
                    f"{path}.devices",
                    f"GPU {device} is already shared on line {places.line(other.path)}; "
                    "a GPU belongs to one entry and one family",
                )
        devices = _devices(entry.devices, f"{path}.devices", places)
        held = ComputeMode.STRICT if mode is None else mode
        concurrency = _concurrency(entry.concurrency, family, f"{path}.concurrency", places)
        shares.append(
            FractionalShare(family, devices, unit_bytes, held, path, placement, concurrency)
        )
    return tuple(shares)


def _common(first: tuple[int | str, ...] | None, second: str | list[int | str]) -> list[int | str]:
    """Returns what two entries both name, as far as that shows without looking at the GPUs."""
    if first is None:
        return ["all"] if isinstance(second, str) else second[:1]
    return list(first[:1]) if isinstance(second, str) else [d for d in second if d in first]


def _devices(
    value: str | list[int | str], path: str, places: Places
) -> tuple[int | str, ...] | None:
    if isinstance(value, str):
        places.one_of(path, value, ("all", "a list of GPU indexes or UUIDs"))
        return None
    if not value:
        raise places.error(path, f"{path[2:]} is an empty list; name a GPU index or UUID, or all")
    for number, device in enumerate(value):
        if isinstance(device, int) and device < 0:
            raise places.error(f"{path}[{number}]", f"GPU index {device} is below 0")
        if device in value[:number]:
            raise places.error(f"{path}[{number}]", f"GPU {device} is named twice in {path[2:]}")
    return tuple(value)


def _rule(rule: schema.Rule, path: str, places: Places) -> LimitRule:
    percent: int | None = None
    share: float | None = None
    if rule.core is not None:
        match = _PERCENT.fullmatch(rule.core) if isinstance(rule.core, str) else None
        if match and 0 < float(match[1]) <= 100:
            share = float(match[1]) / 100
        elif isinstance(rule.core, int) and 1 <= rule.core <= 100:
            percent = rule.core
        else:
            raise places.error(
                f"{path}.core",
                f"core {rule.core!r} must be 1 to 100 percent of a GPU, or a part of what was "
                'asked such as "60%"',
            )
    memory = None if rule.memory is None else _size(rule.memory, f"{path}.memory", places)
    mode = _compute(rule.compute, f"{path}.compute", places)
    if rule.core is None and memory is None and mode is None and not rule.allow_raise:
        raise places.error(
            path, f"{path[2:]} changes nothing; give core, memory, compute or allowRaise: true"
        )
    return LimitRule(
        namespace=rule.match.namespace,
        container=rule.match.container,
        core_percent=percent,
        core_share_of_asked=share,
        memory_bytes=memory,
        compute=mode,
        pod_labels=tuple(rule.match.pod_labels.items()),
        allow_raise=rule.allow_raise,
        path=path,
        line=places.line(path),
    )


def _not_served(file: schema.ConfigFile, sharing: schema.Sharing, places: Places) -> list[str]:
    found = flags_not_served(file.flags or schema.Flags(), places)
    if file.resources and (file.resources.gpus or file.resources.migs):
        found.append("resources")
    for key, section in (("timeSlicing", sharing.time_slicing), ("mps", sharing.mps)):
        for number, entry in enumerate(section.resources if section else []):
            path = f"$.sharing.{key}.resources[{number}].replicas"
            if entry.replicas < 2:
                raise places.error(path, f"{path[2:]} is {entry.replicas}, allowed is 2 or more")
        if section and section.resources:
            found.append(f"sharing.{key}")
    if file.imex and file.imex.channel_ids:
        found.append("imex")
    return found
