"""What a container may use and where each value comes from: everything that counts, in one place.

In come the request (`limits.asked`), the rule of the config that meets it and the units that a
raise may use up (`limits.rules`), what `vgpuctl set` says and the memory that is charged outside
the shim's ledger. `resolve` takes them in this order, for core, memory and compute alike:

1. The value wished for is that of `vgpuctl set`, else the rule's, else the request's.
2. Core and memory go down freely, and up only where the rule has ``allowRaise: true``. A raise
   needs whole units of the GPU; each of core and memory gets all that it needs or keeps what an
   earlier raise took, and a sentence says what is missing.
3. A container without core has what others leave over; unaccounted memory is charged.

A half that is missing stays 0, whatever was set. An exclusive GPU (family mps, all core units) has
no share to hold, so its core is the request's. Pure; `core.enforcement` keeps the result until an
input changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from deviceplugin.model.allocations import Allocation
from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.overrides import Override
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family, on_left_over

from .asked import has_exclusive_gpu, under_mps
from .rules import RaiseRoom, RaiseUnits, may_be_off, may_rise, no_core, no_memory


class Source(StrEnum):
    """Who may say a value."""

    REQUEST = "request"
    SHARING = "sharing"  # how the config shares the GPU
    RULE = "rule"
    SET = "vgpuctl set"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value in force comes from.

    Attributes:
        rule: path and line of the rule, where it is one's.
        capped: more was wished for, and this is as far as the GPU's unallocated units go.
    """

    source: Source
    rule: str = ""
    capped: bool = False

    def __str__(self) -> str:
        """As ``/v1/state`` has it."""
        said = self.rule if self.source is Source.RULE else self.source.value
        return f"{said}, capped by what the GPU has unallocated" if self.capped else said


@dataclass(frozen=True, slots=True)
class DeviceOrigins:
    """Where the values of one device come from."""

    core: Origin
    memory: Origin
    compute: Origin


@dataclass(frozen=True, slots=True)
class ResolvedLimits:
    """What holds for one allocation.

    Attributes:
        asked: what it asked for, without rules and `vgpuctl set`.
        rule: the one of the config that meets it.
        limits: what is in force, as its `limits` file has it.
        origins: of the values of each device in ``limits``.
        raised: the units that its raise uses up.
        core_refusal: why its core is not as high as wished; None where it is.
        memory_refusal: the same of its memory.
        cause: who has the last word on its limits, for log lines.
    """

    asked: ContainerLimits
    rule: LimitRule | None
    limits: ContainerLimits
    origins: tuple[DeviceOrigins, ...]
    raised: RaiseUnits
    core_refusal: str | None
    memory_refusal: str | None
    cause: str

    @property
    def refusal(self) -> str | None:
        """Why a raise was refused, None where none was."""
        return self.core_refusal or self.memory_refusal

    def refusal_of(self, override: Override | None) -> str | None:
        """Returns why a value that ``override`` names cannot be given, None where all can."""
        if override is None:
            return None
        core = self.core_refusal if override.core_percent is not None else None
        return core or (self.memory_refusal if override.memory_bytes is not None else None)


def resolve(
    allocation: Allocation,
    asked: ContainerLimits,
    rule: LimitRule | None,
    room: RaiseRoom,
    unaccounted_bytes: Mapping[str, int],
) -> ResolvedLimits:
    """Returns what holds for an allocation with what `vgpuctl set` says of it.

    Args:
        asked: its request as limits.
        rule: the one that meets it.
        room: how far it may rise.
        unaccounted_bytes: what it is charged outside its ledger, by GPU.
    """
    said = _Said(asked, rule, allocation.override)
    needed, core_refusal, memory_refusal = RaiseUnits(), None, None
    if said.may_rise:
        (device,), unit_bytes = asked.devices, allocation.memory_unit_bytes
        percent, size = said.core(device)[0], said.memory(device)[0]
        more_bytes = max(0, size - device.memory_limit_bytes)
        needed = RaiseUnits(max(0, percent - device.core_percent), -(-more_bytes // unit_bytes))
        reach_percent = room.taken.core + room.free.core
        reach_units = room.taken.memory + room.free.memory
        if needed.core > reach_percent:
            core_refusal = no_core(device, percent, reach_percent, allocation.described())
        if needed.memory > reach_units:
            reach_bytes = reach_units * unit_bytes
            memory_refusal = no_memory(device, size, reach_bytes, allocation.described())
    raised = room.granted(needed)
    more = raised.core, raised.memory * allocation.memory_unit_bytes
    found = [_resolve_device(device, said, *more) for device in asked.devices]
    devices = (
        replace(device, unaccounted_bytes=unaccounted_bytes.get(device.uuid, 0))
        for device, _ in found
    )
    return ResolvedLimits(
        asked,
        rule,
        replace(asked, devices=tuple(devices)),
        tuple(origins for _, origins in found),
        raised,
        core_refusal,
        memory_refusal,
        said.cause,
    )


class _Said:
    """What rule and `vgpuctl set` say of a container, value by value."""

    def __init__(
        self, asked: ContainerLimits, rule: LimitRule | None, override: Override | None
    ) -> None:
        self.family = asked.family
        self.has_exclusive_gpu = has_exclusive_gpu(asked)
        self.may_rise = may_rise(asked, rule)
        place = f"{rule.path[2:]} on line {rule.line}" if rule is not None else ""
        words = ([] if override is None else [Source.SET.value]) + [place] * bool(rule)
        self.cause = " over ".join(words) or Source.REQUEST.value
        self._rule, self._override = rule or LimitRule(), override or Override()
        self._by_rule = Origin(Source.RULE, place)

    def core(self, device: DeviceLimit) -> tuple[int, Origin]:
        """Returns the percentage wished for."""
        asked, rule = device.core_percent, self._rule
        if not asked or self.has_exclusive_gpu:
            return asked, Origin(Source.REQUEST)
        if self._override.core_percent is not None:
            return self._override.core_percent, Origin(Source.SET)
        if rule.core_percent is not None:
            return rule.core_percent, self._by_rule
        if rule.core_part_of_asked is not None:
            return max(1, int(asked * rule.core_part_of_asked)), self._by_rule
        return asked, Origin(Source.REQUEST)

    def memory(self, device: DeviceLimit) -> tuple[int, Origin]:
        """Returns the bytes wished for."""
        asked = device.memory_limit_bytes
        if asked and self._override.memory_bytes is not None:
            return self._override.memory_bytes, Origin(Source.SET)
        if asked and self._rule.memory_bytes is not None:
            return self._rule.memory_bytes, self._by_rule
        return asked, Origin(Source.REQUEST)

    def compute(self, device: DeviceLimit) -> tuple[ComputeMode, Origin]:
        """Returns how the share is to be held."""
        rule, wish = self._rule, self._override.compute
        if not device.core_percent or self.family is Family.MPS:
            return device.compute_mode, Origin(Source.SHARING)
        if wish is not None and (wish is not ComputeMode.OFF or may_be_off(device, rule)):
            return wish, Origin(Source.SET)
        if rule.compute is not None:
            return rule.compute, self._by_rule
        return device.compute_mode, Origin(Source.SHARING)

    def held(self, asked: int, wished: tuple[int, Origin], more: int) -> tuple[int, Origin]:
        """Returns what of a wish holds, where ``more`` than asked is to be had."""
        value, origin = wished
        if value <= asked + more:
            return wished
        return asked + more, replace(origin, capped=True) if self.may_rise else _REQUESTED


_REQUESTED = Origin(Source.REQUEST)


def _resolve_device(
    asked: DeviceLimit, said: _Said, more_percent: int, more_bytes: int
) -> tuple[DeviceLimit, DeviceOrigins]:
    percent, core = said.held(asked.core_percent, said.core(asked), more_percent)
    size, memory = said.held(asked.memory_limit_bytes, said.memory(asked), more_bytes)
    mode, compute = said.compute(asked)
    device = replace(
        asked,
        core_percent=percent,
        weight=max(1, percent),
        memory_limit_bytes=size,
        physical_bytes=size,
        compute_mode=mode,
    )
    if said.family is Family.MPS:
        if not said.has_exclusive_gpu:
            device = under_mps(device)
    elif not percent:  # MPS starts no client without compute
        device = on_left_over(device)
    return device, DeviceOrigins(core, memory, compute)
