"""Raising a container above what it asked for: what that uses up, and why it may not be. Pure.

Only the config permits it, by ``allowRaise: true`` in the rule that matches the container, and only
the GPU's unallocated units bear it; they are then withdrawn from the kubelet.
"""

from deviceplugin.config.loading import LimitRule
from deviceplugin.model.overrides import Override
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.sizes import format_size

from .effective_limits import RaiseRoom, has_exclusive_gpu, may_be_off, may_rise


def raised_by(
    asked: ContainerLimits, limits: ContainerLimits, memory_unit_bytes: int
) -> tuple[int, int]:
    """Returns how many units of its GPU ``limits`` use up beyond what was asked for.

    Returns:
        Core units (percent) and memory units, a begun one counted whole.
    """
    percent = sum(device.core_percent for device in limits.devices)
    size = sum(device.memory_limit_bytes for device in limits.devices)
    more_bytes = size - sum(device.memory_limit_bytes for device in asked.devices)
    more_percent = percent - sum(device.core_percent for device in asked.devices)
    return max(0, more_percent), -(-max(0, more_bytes) // memory_unit_bytes)


def not_permitted(
    asked: ContainerLimits, rule: LimitRule | None, override: Override, who: str
) -> str | None:
    """Returns in words why the config does not permit an override, None where it does.

    Args:
        rule: the one that matches the container.
        who: the container, as the sentence names it.
    """
    if override.compute is not None and asked.family is Family.MPS:
        return (
            f"compute {override.compute} of {who} cannot be set: it belongs to family vgpu; in "
            "family mps the MPS daemon holds the share"
        )
    if override.core_percent is not None and has_exclusive_gpu(asked):
        return (
            f"core {override.core_percent} of {who} cannot be set: it has its GPU bare, without "
            "MPS, where nobody holds a share; only its memory can be changed"
        )
    why = _why_not(asked, rule)
    permitted = may_rise(asked, rule)
    for device in asked.devices:
        problem = _raise_problem(device, override, permitted, who, why)
        if problem is None and override.compute == "off" and not may_be_off(device, rule):
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


def no_room(
    asked: ContainerLimits, wanted: ContainerLimits, room: RaiseRoom, who: str
) -> str | None:
    """Returns in words why a GPU cannot bear a raise, None where it can.

    Args:
        wanted: what `limits.effective_limits` says with `limits.PLENTY` of room.
        room: what is unallocated on the GPU, with what an earlier raise of the same container took.
        who: the container, as the sentence names it.
    """
    for had, wish in zip(asked.devices, wanted.devices, strict=True):
        core = wish.core_percent - had.core_percent
        if core > room.core_percent:
            return (
                f"core {wish.core_percent} of {who} cannot be given: that is {core} more than the "
                f"{had.core_percent} it asked for, and GPU {had.uuid} has {room.core_percent} "
                f"unallocated; at most {had.core_percent + room.core_percent} is allowed"
            )
        size = wish.memory_limit_bytes - had.memory_limit_bytes
        if size > room.memory_bytes:
            most = had.memory_limit_bytes + room.memory_bytes
            return (
                f"memory {format_size(wish.memory_limit_bytes)} of {who} cannot be given: that is "
                f"{format_size(size)} more than the {format_size(had.memory_limit_bytes)} it asked "
                f"for, and GPU {had.uuid} has {format_size(room.memory_bytes)} unallocated; "
                f"at most {format_size(most)} is allowed"
            )
    return None


def cause(rule: LimitRule | None, override: Override | None) -> str:
    """Returns who has the last word on a container's limits, for log lines."""
    words = [] if override is None else ["vgpuctl set"]
    if rule is not None:
        words.append(f"{rule.path[2:]} on line {rule.line}")
    return " over ".join(words) or "request"
