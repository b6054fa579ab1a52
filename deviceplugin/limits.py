"""From units to the values in a container's `limits` file, config rules applied.

Pure. A rule only lowers; the first one that matches counts; a container whose name is not known
yet has what it asked for.
"""

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family

from .config import LimitRule
from .holdings import Holding, Owner

MIB = 1 << 20
#: Where the MPS pipe directory is in a container.
CONTAINER_PIPE_DIRECTORY = "/run/vgpu/mps"


def matching_rule(rules: Iterable[LimitRule], owner: Owner | None) -> LimitRule | None:
    """Returns the first rule that meets the container; names are shell patterns."""
    if owner is None:
        return None
    for rule in rules:
        if (
            not rule.needs_labels
            and fnmatchcase(owner.namespace, rule.namespace)
            and fnmatchcase(owner.container, rule.container)
        ):
            return rule
    return None


def asked_limits(holding: Holding, compute: ComputeMode, context_bytes: int = 0) -> ContainerLimits:
    """Returns what a holding is worth without any rule.

    While one half is missing its value is 0; no process runs before both have one.

    Args:
        compute: how the config holds compute on its GPU (family vgpu).
        context_bytes: what a context costs there; 0 lets the shim measure it.
    """
    percent = len(holding.core)
    device = DeviceLimit(
        uuid=holding.uuid,
        memory_limit_bytes=holding.memory_bytes,
        physical_bytes=holding.memory_bytes,
        context_bytes=context_bytes,
        core_percent=percent,
        compute_mode=compute,
        weight=max(1, percent),
    )
    if holding.family is Family.MPS:
        device = _under_mps(device)
    return ContainerLimits(holding.allocation_id, holding.family, (device,))


def effective_limits(asked: ContainerLimits, rule: LimitRule | None) -> ContainerLimits:
    """Returns ``asked`` lowered by ``rule``."""
    if rule is None:
        return asked
    devices = []
    for device in asked.devices:
        percent, memory = device.core_percent, device.memory_limit_bytes
        if rule.core_percent is not None:
            percent = min(percent, rule.core_percent)
        if rule.core_share_of_asked is not None and percent:
            percent = max(1, int(percent * rule.core_share_of_asked))
        if rule.memory_bytes is not None:
            memory = min(memory, rule.memory_bytes)
        mode = device.compute_mode
        if rule.compute is not None and percent:
            mode = rule.compute
        changed = replace(
            device,
            core_percent=percent,
            weight=max(1, percent),
            memory_limit_bytes=memory,
            physical_bytes=memory,
            compute_mode=mode,
        )
        devices.append(_under_mps(changed) if asked.family is Family.MPS else changed)
    return replace(asked, devices=tuple(devices))


def _under_mps(device: DeviceLimit) -> DeviceLimit:
    """MPS holds the share, so the shim does not; MPS counts memory in whole MiB."""
    whole_mib = max(MIB, device.memory_limit_bytes // MIB * MIB)
    return replace(
        device,
        compute_mode=ComputeMode.OFF,
        mps_thread_percentage=device.core_percent,
        mps_pinned_bytes=whole_mib if device.memory_limit_bytes else 0,
        mps_pipe_directory=CONTAINER_PIPE_DIRECTORY,
    )


def pending(before: ContainerLimits, after: ContainerLimits) -> list[str]:
    """Returns in words what of a change holds only in processes that start later.

    MPS fixes a client's share and pinned memory when it connects; lower memory holds at once,
    because the shim enforces it too.
    """
    if after.family is not Family.MPS:
        return []
    found = []
    for old, new in zip(before.devices, after.devices, strict=False):
        if old.mps_thread_percentage != new.mps_thread_percentage:
            found.append(f"core {old.core_percent} to {new.core_percent}")
        if new.memory_limit_bytes > old.memory_limit_bytes:
            found.append(f"memory {old.memory_limit_bytes} to {new.memory_limit_bytes} bytes")
    return found
