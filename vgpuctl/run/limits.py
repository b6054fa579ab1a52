"""Changing a running slice of `vgpuctl run`, which no agent keeps.

Its owner may have what he could ask `vgpuctl run` for: any lower value, and the memory and compute
that no other slice of the run directory is promised. Looking and writing are one step
under the same lock as making a slice (`core_sum.admitting`).

What the slice was made with is kept in ``asked.json`` in its directory from the first change on, so
that it can be gone back to; going back is a change like any other and may be refused too.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.pages.changes import OverrideForm
from libvgpu import region
from libvgpu.allocation_dirs import AllocationDir
from libvgpu.decoding import json_decoder
from libvgpu.errors import AllocationRefused, RegionError, UsageError, naming
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, on_left_over
from libvgpu.sizes import format_size

from . import core_sum, memory_sum

_ASKED = "asked.json"
_ASKED_FORMS = json_decoder(list[OverrideForm])

#: Returns the whole memory of a GPU in bytes, None where it is not seen from here.
MemoryOf = Callable[[str], int | None]


def set_limits(
    run_dir: Path, allocation: AllocationDir, override: Override, memory_of: MemoryOf
) -> LimitChange:
    """Sets the values that ``override`` names on every GPU of the slice.

    Raises:
        UsageError: a share for a slice that holds none.
        AllocationRefused: the GPU has not that much for it.
        RegionError: the slice's files are damaged, or it has ended.
    """
    directory = allocation.directory
    with core_sum.admitting(run_dir):
        before = region.read_limits(directory).limits
        after = replace(before, devices=tuple(_with(d, override) for d in before.devices))
        if any(
            d.compute_mode is ComputeMode.STRICT and not d.reserved_percent for d in after.devices
        ):
            raise UsageError(
                "compute strict holds a share, and this slice has none, since it has what others "
                "leave over: give --core PERCENT too"
            )
        held = all(device.compute_mode is not ComputeMode.OFF for device in after.devices)
        if override.core_percent is not None and not held:
            raise UsageError(
                f"core {override.core_percent} does nothing for a slice with compute off, which "
                "holds no share: give --compute strict or elastic too"
            )
        asked = _read_asked(directory)
        for made, new in zip(asked or map(_values, before.devices), after.devices, strict=True):
            if new.memory_limit_bytes > (made.memory_bytes or 0):
                _require_memory(new, memory_of(new.uuid))
        _require_share(run_dir, before, after)
        _require_sum(run_dir, before, after, memory_of)
        if asked is None:
            _write_asked(directory, before)
        return _publish(directory, before, after)


def clear_limits(run_dir: Path, allocation: AllocationDir, memory_of: MemoryOf) -> LimitChange:
    """Goes back to what the slice was made with.

    Raises:
        AllocationRefused: others have been promised the compute or the memory meanwhile.
        RegionError: the slice's files are damaged, or it has ended.
    """
    directory = allocation.directory
    with core_sum.admitting(run_dir):
        before = region.read_limits(directory).limits
        asked = _read_asked(directory)
        if asked is None:
            return LimitChange("", before, before)
        devices = tuple(_with(d, made) for d, made in zip(before.devices, asked, strict=True))
        after = replace(before, devices=devices)
        _require_share(run_dir, before, after)
        _require_sum(run_dir, before, after, memory_of)
        change = _publish(directory, before, after)
        (directory / _ASKED).unlink()
        return change


def _with(device: DeviceLimit, override: Override) -> DeviceLimit:
    mode = device.compute_mode if override.compute is None else override.compute
    size = device.memory_limit_bytes if override.memory_bytes is None else override.memory_bytes
    made = replace(device, compute_mode=mode, memory_limit_bytes=size, physical_bytes=size)
    if override.core_percent is None:
        return made
    if not override.core_percent:
        return on_left_over(made)
    return replace(made, core_percent=override.core_percent, weight=override.core_percent)


def _values(device: DeviceLimit) -> Override:
    """Returns what a device has; a core of 0 is what others leave over."""
    return Override(device.reserved_percent, device.memory_limit_bytes, device.compute_mode)


def _require_share(run_dir: Path, before: ContainerLimits, after: ContainerLimits) -> None:
    rising = [
        new
        for old, new in zip(before.devices, after.devices, strict=True)
        if core_sum.promised_percent(new) > core_sum.promised_percent(old)
    ]
    core_sum.require_free_share(run_dir, rising, apart_from=before.allocation_id)


def _require_sum(
    run_dir: Path, before: ContainerLimits, after: ContainerLimits, memory_of: MemoryOf
) -> None:
    rising = [
        new
        for old, new in zip(before.devices, after.devices, strict=True)
        if new.memory_limit_bytes > old.memory_limit_bytes
    ]
    whole_bytes = {device.uuid: memory_of(device.uuid) for device in rising}
    memory_sum.require_free_memory(run_dir, rising, whole_bytes, before.allocation_id)


def _require_memory(device: DeviceLimit, whole_bytes: int | None) -> None:
    wish = f"memory {format_size(device.memory_limit_bytes)} ({device.memory_limit_bytes} bytes)"
    if not whole_bytes:
        why = "is not seen from here" if whole_bytes is None else "does not tell NVML"
        raise AllocationRefused(
            f"{wish} cannot be given: GPU {device.uuid} {why}, so nobody knows what it has; at "
            "most what it was made with is allowed"
        )
    if device.memory_limit_bytes > whole_bytes:
        raise AllocationRefused(
            f"{wish} is more than GPU {device.uuid} has: at most {format_size(whole_bytes)} "
            f"({whole_bytes} bytes)"
        )


def _publish(directory: Path, before: ContainerLimits, after: ContainerLimits) -> LimitChange:
    if after != before:
        region.write_limits(directory, after)
    return LimitChange("", before, after)


def _write_asked(directory: Path, limits: ContainerLimits) -> None:
    temporary = directory / (_ASKED + ".new")
    rows = [OverrideForm.of(_values(device)) for device in limits.devices]
    with naming(temporary):
        temporary.write_bytes(msgspec.json.encode(rows))
    temporary.replace(directory / _ASKED)


def _read_asked(directory: Path) -> list[Override] | None:
    """Returns what each device was asked for, None where nothing was changed yet."""
    path = directory / _ASKED
    try:
        return [form.override() for form in _ASKED_FORMS.decode(path.read_bytes())]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RegionError(f"{path} cannot be read: {error}") from None
