"""From units to the values in a container's `limits` file: request, config rules, `vgpuctl set`.

Pure. Each value (core, memory, compute) is that of `vgpuctl set` where it says one, else that of
the first rule of the config that matches, else what was asked. Core and memory only lower, unless
the matching rule has ``allowRaise: true`` and the GPU has that much unallocated:

1. `effective_limits` with `PLENTY` of room is what rule and override want and are permitted;
2. `raising.raised_by` says how many further units of the GPU that uses up; the service takes them
   out of what the kubelet is offered, or leaves it (`raising.no_room` says why in words);
3. `effective_limits` with the room that was taken out is what holds.

Of a container of family mps that has its GPUs bare, nobody holds the share, so it is never lowered.
A container whose name is not known yet has what it asked for; so has a half that is missing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from deviceplugin.config.loading import COMPUTE_MODES, LimitRule
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.overrides import Override
from deviceplugin.model.units import Half
from libvgpu.limits import WHOLE_CORE_PERCENT, ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.sizes import MAX_BYTES

from .exclusive_gpu import is_exclusive

MIB = 1 << 20
#: Of who asked for memory alone: the least there is, and what nobody else wants.
LEFT_OVER_PERCENT = 1
#: Where the MPS pipe directory is in a container.
CONTAINER_PIPE_DIRECTORY = "/run/vgpu/mps"


@dataclass(frozen=True, slots=True)
class RaiseRoom:
    """How far a container may rise above what it asked for."""

    core_percent: int = 0
    memory_bytes: int = 0


NO_ROOM = RaiseRoom()
PLENTY = RaiseRoom(WHOLE_CORE_PERCENT, MAX_BYTES)


def matching_rule(
    rules: Iterable[LimitRule], owner: Owner | None, labels: Mapping[str, str] | None = None
) -> LimitRule | None:
    """Returns the first rule that meets the container; names are shell patterns.

    Args:
        labels: of its pod; None where nobody can tell, then rules that ask for some never match.
    """
    if owner is None:
        return None
    for rule in rules:
        if (
            fnmatchcase(owner.namespace, rule.namespace)
            and fnmatchcase(owner.container, rule.container)
            and _labels_match(rule, labels)
        ):
            return rule
    return None


def _labels_match(rule: LimitRule, labels: Mapping[str, str] | None) -> bool:
    if not rule.pod_labels:
        return True
    return labels is not None and all(labels.get(key) == value for key, value in rule.pod_labels)


def asked_limits(
    allocation: Allocation,
    compute: ComputeMode,
    context_bytes: int = 0,
    whole_bytes: Mapping[str, int] | None = None,
) -> ContainerLimits:
    """Returns what an allocation is worth without any rule.

    A half that is missing is 0 (see `with_left_over`).

    Args:
        compute: how the config holds compute on its GPUs (family vgpu).
        context_bytes: what a context costs there; 0 lets the shim measure it.
        whole_bytes: memory of each GPU whose last part of a unit nobody else could have, since the
            allocation has all its units, by UUID.
    """
    devices = []
    for uuid in allocation.uuids:
        percent = allocation.count(Half.CORE, uuid)
        units = allocation.count(Half.MEMORY, uuid) * allocation.memory_unit_bytes
        memory_bytes = (whole_bytes or {}).get(uuid, units)
        device = DeviceLimit(
            uuid=uuid,
            memory_limit_bytes=memory_bytes,
            physical_bytes=memory_bytes,
            context_bytes=context_bytes,
            core_percent=percent,
            compute_mode=compute,
            weight=max(1, percent),
        )
        devices.append(device)
    if allocation.family is Family.MPS:
        # MPS holds the share of its clients; nobody holds that of who has its GPU bare.
        bare = is_exclusive(allocation)
        devices = [
            replace(d, compute_mode=ComputeMode.OFF) if bare else _under_mps(d) for d in devices
        ]
    return ContainerLimits(allocation.allocation_id, allocation.family, tuple(devices))


def with_left_over(limits: ContainerLimits) -> ContainerLimits:
    """Returns limits in which no compute means what others leave over, as the shim reads them."""
    if limits.family is Family.MPS:
        return limits  # a container without compute does not start there
    devices = (
        device
        if device.core_percent
        else replace(
            device, core_percent=LEFT_OVER_PERCENT, compute_mode=ComputeMode.ELASTIC, weight=1
        )
        for device in limits.devices
    )
    return replace(limits, devices=tuple(devices))


def with_unaccounted(limits: ContainerLimits, beside: Mapping[str, int]) -> ContainerLimits:
    """Returns limits that charge what was measured beside the ledger, in bytes by GPU."""
    if not any(beside.values()):
        return limits
    devices = (
        replace(device, unaccounted_bytes=beside.get(device.uuid, 0)) for device in limits.devices
    )
    return replace(limits, devices=tuple(devices))


def effective_limits(
    asked: ContainerLimits,
    rule: LimitRule | None,
    override: Override | None = None,
    room: RaiseRoom = NO_ROOM,
) -> ContainerLimits:
    """Returns what holds: ``asked`` lowered, or raised as far as permitted and as ``room`` goes.

    Args:
        room: `PLENTY` gives what rule and override want, whatever the GPU has.
    """
    if rule is None and override is None:
        return asked
    rule, override = rule or LimitRule(), override or Override()
    if not may_rise(asked, rule):
        room = NO_ROOM
    devices = []
    for device in asked.devices:
        percent, memory = device.core_percent, device.memory_limit_bytes
        if not has_exclusive_gpu(asked):
            percent = _held(percent, _wished_percent(percent, rule, override), room.core_percent)
        memory = _held(memory, _wished_bytes(memory, rule, override), room.memory_bytes)
        changed = replace(
            device,
            core_percent=percent,
            weight=max(1, percent),
            memory_limit_bytes=memory,
            physical_bytes=memory,
            compute_mode=_mode(device, rule, override) if percent else device.compute_mode,
        )
        is_client = asked.family is Family.MPS and not has_exclusive_gpu(asked)
        devices.append(_under_mps(changed) if is_client else changed)
    return replace(asked, devices=tuple(devices))


def has_exclusive_gpu(limits: ContainerLimits) -> bool:
    """Returns whether a container of family mps has its GPUs without MPS: its share is all."""
    return limits.family is Family.MPS and not any(d.mps_pipe_directory for d in limits.devices)


def may_rise(asked: ContainerLimits, rule: LimitRule | None) -> bool:
    """Returns whether the config permits a raise; a container on several GPUs has them whole."""
    return rule is not None and rule.allow_raise and len(asked.devices) == 1


def _wished_percent(asked: int, rule: LimitRule, override: Override) -> int:
    if override.core_percent is not None:
        return override.core_percent
    if rule.core_percent is not None:
        return rule.core_percent
    if rule.core_share_of_asked is not None:
        return max(1, int(asked * rule.core_share_of_asked))
    return asked


def _wished_bytes(asked: int, rule: LimitRule, override: Override) -> int:
    if override.memory_bytes is not None:
        return override.memory_bytes
    return asked if rule.memory_bytes is None else rule.memory_bytes


def _held(asked: int, wished: int, room: int) -> int:
    """Returns the value that holds; a half that is missing stays so."""
    return min(wished, asked + room) if asked else 0


def _mode(device: DeviceLimit, rule: LimitRule, override: Override) -> ComputeMode:
    mode = device.compute_mode if rule.compute is None else rule.compute
    if override.compute is None or (override.compute == "off" and not may_be_off(device, rule)):
        return mode
    return COMPUTE_MODES[override.compute]


def may_be_off(device: DeviceLimit, rule: LimitRule | None) -> bool:
    """Returns whether `vgpuctl set` may lift the share: with none held there is no upper end."""
    mode = device.compute_mode if rule is None or rule.compute is None else rule.compute
    return mode is ComputeMode.OFF or (rule is not None and rule.allow_raise)


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


def pending_values(before: DeviceLimit, after: DeviceLimit, family: Family) -> tuple[str, ...]:
    """Returns which of ``core`` and ``memory`` hold only in processes that start later.

    MPS fixes a client's share and pinned memory when it connects; lower memory holds at once,
    because the shim enforces it too.
    """
    if family is not Family.MPS:
        return ()
    found = []
    if before.mps_thread_percentage != after.mps_thread_percentage:
        found.append("core")
    if after.memory_limit_bytes > before.memory_limit_bytes:
        found.append("memory")
    return tuple(found)


def pending(before: ContainerLimits, after: ContainerLimits) -> list[str]:
    """Returns in words what of a change holds only in processes that start later."""
    found = []
    for old, new in zip(before.devices, after.devices, strict=False):
        values = pending_values(old, new, after.family)
        if "core" in values:
            found.append(f"core {old.core_percent} to {new.core_percent}")
        if "memory" in values:
            found.append(f"memory {old.memory_limit_bytes} to {new.memory_limit_bytes} bytes")
    return found
