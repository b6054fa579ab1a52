"""What a change of limits means for the processes that run, and how it is told. Pure."""

from collections.abc import Sequence

from deviceplugin.model.overrides import LimitChange
from deviceplugin.pages.changes import ChangedDevice, ChangedLimits, LimitValues
from libvgpu.limits import DeviceLimit, Family
from libvgpu.sizes import format_size


def pending(before: DeviceLimit, after: DeviceLimit, family: Family) -> dict[str, str]:
    """Returns which of ``core`` and ``memory`` hold only in processes that start later, each with
    what a sentence says of it.

    MPS fixes a client's share and pinned memory when it connects; lower memory holds at once,
    because the shim enforces it too.
    """
    found = {}
    if family is Family.MPS and before.mps_thread_percentage != after.mps_thread_percentage:
        found["core"] = f"core {before.core_percent} to {after.core_percent}"
    if family is Family.MPS and after.memory_limit_bytes > before.memory_limit_bytes:
        found["memory"] = f"memory {before.memory_limit_bytes} to {after.memory_limit_bytes} bytes"
    return found


def change_text(old: DeviceLimit, new: DeviceLimit, cause: str, waits: Sequence[str]) -> str:
    """Returns what an Event says of a change of one device's limits.

    Args:
        cause: who has the last word on the limits.
        waits: what holds only in processes that start later (`pending`).
    """
    sizes = f"{format_size(old.memory_limit_bytes)} to {format_size(new.memory_limit_bytes)}"
    text = f"GPU memory {sizes}, compute {old.reserved_percent}% to {new.reserved_percent}%"
    if old.compute_mode is not new.compute_mode:
        text += f" held {old.compute_mode.word} to {new.compute_mode.word}"
    later = f"; when its processes start again: {'; '.join(waits)}" if waits else ""
    return f"{text}, by {cause}{later}"


def changed_limits(allocation_id: str, change: LimitChange) -> ChangedLimits:
    """Returns what a change did, device by device."""
    before, after = change.before, change.after
    devices = []
    for old, new in zip(before.devices, after.devices, strict=False):
        was, now = (
            LimitValues(
                memory_bytes=each.memory_limit_bytes,
                core_percent=each.reserved_percent,
                compute=None if after.family is Family.MPS else each.compute_mode.word,
            )
            for each in (old, new)
        )
        devices.append(ChangedDevice(new.uuid, was, now, tuple(pending(old, new, after.family))))
    return ChangedLimits(allocation_id, change.owner, tuple(devices))
