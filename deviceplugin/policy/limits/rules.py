"""What the config's ``limits`` allow a container: the rule, the permission to rise, the room. Pure.

Only ``allowRaise: true`` in the rule that meets it permits a raise, and only the GPU's unallocated
units bear one. They are withdrawn from the kubelet for as long as the allocation has them
(`Allocation.raised`). How many a raise needs is the resolver's to say; here they are counted, taken
and given back. Why a container may not rise is told in sentences.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.overrides import Override
from deviceplugin.model.units import Half, half_of
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.devices.offer import fits_layout, unit_names
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.sizes import format_size

from .asked import has_exclusive_gpu


def matching_rule(
    rules: Iterable[LimitRule], owner: Owner | None, labels: Mapping[str, str] | None = None
) -> LimitRule | None:
    """Returns the first rule that meets the container; names are shell patterns.

    Args:
        owner: None while nobody knows whose container it is; then no rule meets it.
        labels: of its pod; None where nobody can tell, then rules that ask for some never match.
    """
    if owner is None:
        return None
    for rule in rules:
        if (
            fnmatchcase(owner.namespace, rule.namespace)
            and fnmatchcase(owner.container, rule.container)
            and (
                not rule.pod_labels
                or (labels is not None and all(labels.get(k) == v for k, v in rule.pod_labels))
            )
        ):
            return rule
    return None


def may_rise(asked: ContainerLimits, rule: LimitRule | None) -> bool:
    """Returns whether the config permits a raise; a container on several GPUs has them whole."""
    return rule is not None and rule.allow_raise and len(asked.devices) == 1


def may_be_off(device: DeviceLimit, rule: LimitRule | None) -> bool:
    """Returns whether `vgpuctl set` may lift the share: with none held there is no upper end."""
    mode = device.compute_mode if rule is None or rule.compute is None else rule.compute
    return mode is ComputeMode.OFF or (rule is not None and rule.allow_raise)


def not_permitted(
    asked: ContainerLimits, rule: LimitRule | None, override: Override, who: str
) -> str | None:
    """Returns why the config does not permit an override, None where it does.

    Args:
        rule: the one that matches the container.
        who: the container, as the sentence names it.
    """
    if override.compute is not None and asked.family is Family.MPS:
        return (
            f"compute {override.compute.word} of {who} cannot be set: it belongs to family vgpu; "
            "in family mps the MPS daemon holds the share"
        )
    if override.core_percent is not None and has_exclusive_gpu(asked):
        return (
            f"core {override.core_percent} of {who} cannot be set: its GPU is exclusive, without "
            "MPS, so there is no share to hold; only its memory can be changed"
        )
    why = _why_not(asked, rule)
    permitted = may_rise(asked, rule)
    for device in asked.devices:
        problem = _raise_problem(device, override, permitted, who, why)
        if problem is None and override.compute is ComputeMode.OFF and not may_be_off(device, rule):
            problem = (
                f"compute off of {who} cannot be set: it would lift the share of "
                f"{device.core_percent} %, and {why}; allowed are strict and elastic"
            )
        if problem is not None:
            return problem
    return None


def _why_not(asked: ContainerLimits, rule: LimitRule | None) -> str:
    if rule is None:
        return "no rule of limits: with allowRaise: true matches it"
    if len(asked.devices) > 1:
        return "it has whole GPUs"
    return f"{rule.path[2:]} on line {rule.line}, which matches it, has no allowRaise: true"


def _raise_problem(
    device: DeviceLimit, override: Override, permitted: bool, who: str, why: str
) -> str | None:
    percent, size = override.core_percent, override.memory_bytes
    if percent is not None and device.core_percent == 0:
        return f"core {percent} of {who} cannot be set: it has no compute of its own to change"
    if percent is not None and percent > device.core_percent and not permitted:
        return (
            f"core {percent} of {who} cannot be set: it asked for {device.core_percent}, and "
            f"{why}; at most {device.core_percent} is allowed"
        )
    if size is not None and size > device.memory_limit_bytes and not permitted:
        most = format_size(device.memory_limit_bytes)
        return (
            f"memory {format_size(size)} of {who} cannot be set: it asked for {most}, and {why}; "
            f"at most {most} is allowed"
        )
    return None


def no_core(device: DeviceLimit, wished_percent: int, reach_percent: int, who: str) -> str:
    """Returns why a GPU cannot bear a raise of core.

    Args:
        device: what was asked for.
        reach_percent: what is unallocated, with what an earlier raise of the same container took.
        who: the container, as the sentence names it.
    """
    had = device.core_percent
    return (
        f"core {wished_percent} of {who} cannot be given: that is {wished_percent - had} more than "
        f"the {had} it asked for, and GPU {device.uuid} has {reach_percent} unallocated; "
        f"at most {had + reach_percent} is allowed"
    )


def no_memory(device: DeviceLimit, wished_bytes: int, reach_bytes: int, who: str) -> str:
    """Returns why a GPU cannot bear a raise of memory; the arguments are as in `no_core`."""
    had = device.memory_limit_bytes
    return (
        f"memory {format_size(wished_bytes)} of {who} cannot be given: that is "
        f"{format_size(wished_bytes - had)} more than the {format_size(had)} it asked for, "
        f"and GPU {device.uuid} has {format_size(reach_bytes)} unallocated; "
        f"at most {format_size(had + reach_bytes)} is allowed"
    )


@dataclass(frozen=True, slots=True)
class RaiseUnits:
    """Numbers of units of one GPU: a core unit is one percent of it."""

    core: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class RaiseRoom:
    """How many units a container may rise by.

    Attributes:
        taken: those that an earlier raise of it took.
        free: those that it may take in addition.
    """

    taken: RaiseUnits = RaiseUnits()
    free: RaiseUnits = RaiseUnits()

    def granted(self, needed: RaiseUnits) -> RaiseUnits:
        """Returns what a raise gets: each half whole, or what it has already."""
        return RaiseUnits(
            _granted(needed.core, self.taken.core, self.free.core),
            _granted(needed.memory, self.taken.memory, self.free.memory),
        )


def _granted(needed: int, taken: int, free: int) -> int:
    return needed if needed <= taken + free else min(needed, taken)


def taken_by(allocation: Allocation) -> RaiseRoom:
    """Returns the room that an allocation has already, without any more."""
    core, memory = (len(_taken(allocation, half)) for half in Half)
    return RaiseRoom(RaiseUnits(core, memory))


def room_on(layout: Layout, book: AllocationBook, allocation: Allocation) -> RaiseRoom:
    """Returns the room that an allocation has with all that is unallocated on its GPU."""
    core, memory = (len(_free(layout, book, allocation, half)) for half in Half)
    return replace(taken_by(allocation), free=RaiseUnits(core, memory))


def with_units(
    layout: Layout, book: AllocationBook, allocation: Allocation, granted: RaiseUnits
) -> Allocation:
    """Returns the allocation with as many raised units as were granted."""
    raised: list[str] = []
    for half, count in zip(Half, (granted.core, granted.memory), strict=True):
        kept = _taken(allocation, half)[:count]
        raised += kept
        if len(kept) < count:
            # From the top: the kubelet is steered to the lowest, so is least likely to offer them.
            raised += _free(layout, book, allocation, half)[len(kept) - count :]
    return replace(allocation, raised=tuple(raised)) if raised or allocation.raised else allocation


def _taken(allocation: Allocation, half: Half) -> tuple[str, ...]:
    return tuple(unit for unit in allocation.raised if half_of(unit) is half)


def _free(layout: Layout, book: AllocationBook, allocation: Allocation, half: Half) -> list[str]:
    shared = layout.find(allocation.uuid)
    if shared is None or shared.replicas or not fits_layout(shared, [allocation]):
        return []  # the GPU is shared in another way by now, or what is free are replicas
    return [unit for unit in unit_names(shared, half) if book.is_free(unit)]
