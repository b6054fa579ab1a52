"""Raising a container above what it asked for: whether it may, and why not, as sentences. Pure.

Only the config permits it, by ``allowRaise: true`` in the rule that matches the container, and only
the GPU's unallocated units bear it; they are then withdrawn from the kubelet.
"""

from deviceplugin.model.limit_rules import LimitRule
from deviceplugin.model.overrides import Override
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.sizes import format_size

from .asked import has_exclusive_gpu


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
