"""The host's side of one container's slice: `limits` made and changed, `usage` and `ring` made.

Every writer of `limits` holds an OFD lock on the file ``lock`` next to it, which no container sees,
and publishes through the same C as the shim reads with (slice/limits_file.c): the idle copy
first, the generation last. All files keep their inode for life.

`ring` is the FIFO into which a process writes one byte to make the GPU's arbiter look at `usage`;
devices beyond the first have `ring.1`, `ring.2` …, since each GPU has its own arbiter. A slice
made before there were rings has none; its processes keep to their own cap.
"""

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._native import ffi, lib
from .errors import DevicesDifferError, LayoutError, RegionError
from .limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from .region_files import (
    DIRECTORY_MODE,
    LIMITS_MODE,
    RING_MODE,
    USAGE_MODE,
    calls_for,
    has_ring,
    locked,
    make_files,
    make_ring,
    open_limits,
    open_ours,
    open_shared,
    ring_path,
    write_lock,
)
from .sharing_mode import Mode, granted_mode
from .usage import ContainerUsage, DeviceUsage, ProcessUsage, Refusal, read_usage

__all__ = [
    "DIRECTORY_MODE", "LIMITS_MODE", "MOST_DEVICES", "RING_MODE", "USAGE_MODE",
    "ContainerUsage", "DeviceUsage", "LimitsView", "ProcessUsage", "Refusal",
    "create", "has_ring", "make_ring", "open_limits", "read_limits", "read_usage", "renew",
    "ring_path", "slice_bytes", "write_limits", "write_lock",
]  # fmt: skip


#: Of one slice.
MOST_DEVICES = int(lib.VGPU_MAX_DEVICES)


@dataclass(frozen=True, slots=True)
class LimitsView:
    """What a `limits` file says now.

    Attributes:
        limits: of the container.
        generation: rises with every change.
        modes: how each of its GPUs is shared, by its arbiter's last word.
    """

    limits: ContainerLimits
    generation: int
    modes: tuple[Mode, ...]


def create(directory: Path, limits: ContainerLimits, *, device_capacity: int | None = None) -> None:
    """Makes ``directory`` with the files `limits`, `usage`, `ring` and `lock` of one container.

    Args:
        directory: must not exist; its parent must.
        limits: what `limits` says from the start.
        device_capacity: most devices it can ever name; the number of devices by default.

    Raises:
        RegionError: the directory exists, the disk is full, or a value does not fit; nothing is
            left behind then.
    """
    capacity = device_capacity or max(1, len(limits.devices))
    if lib.limits_file_bytes(capacity) == 0 or len(limits.devices) > capacity:
        raise RegionError(
            f"a slice of {max(capacity, len(limits.devices))} devices cannot be made: "
            f"1 to {lib.VGPU_MAX_DEVICES} are possible"
        )
    image, usage_head = _new_contents(limits, capacity)
    make_files(directory, image, usage_head, lib.usage_file_bytes(capacity), capacity)


def renew(directory: Path, limits: ContainerLimits) -> None:
    """Gives the files of ``directory``, which no container has seen yet, to another allocation.

    Needs no room on the file system, so it works where `create` would not.

    Args:
        directory: made by `create` for as many devices as ``limits`` names, or more.

    Raises:
        RegionError: a file is missing or was made for fewer devices.
    """
    capacity = len(limits.devices)
    image, usage_head = _new_contents(limits, capacity)
    for path, head, size, mode in (
        (f"{directory}/usage", usage_head, lib.usage_file_bytes(capacity), USAGE_MODE),
        (f"{directory}/limits", image, len(image), LIMITS_MODE),
    ):
        descriptor = open_ours(path, mode)
        try:
            if os.fstat(descriptor).st_size < size:
                raise RegionError(f"{path} has no room for {size} bytes")
            os.ftruncate(descriptor, size)
            os.pwrite(descriptor, head, 0)
        except OSError as error:
            raise RegionError(f"{path} cannot be renewed: {error.strerror}") from error
        finally:
            os.close(descriptor)
    while (surplus := ring_path(directory, capacity)).name != "ring":
        surplus.unlink()
        capacity += 1


def _new_contents(limits: ContainerLimits, capacity: int) -> tuple[bytes, bytes]:
    """Returns the first content of `limits`, and of `usage` its header; zeros follow."""
    head, devices = _encode(limits)
    image = bytearray(lib.limits_file_bytes(capacity))
    view = ffi.from_buffer("unsigned char[]", image, require_writable=True)
    lib.limits_format(view, capacity)
    lib.limits_publish(view, head, devices)
    usage = ffi.new("struct vgpu_usage_header *")
    lib.usage_format(usage, capacity, limits.allocation_id.encode())
    return bytes(image), bytes(ffi.buffer(usage))


def usage_bytes(directory: Path) -> int:
    """Returns how long `usage` was made, as `limits` next to it says, which no container can
    change.

    Raises:
        RegionError: `limits` is missing, damaged, or of another layout version.
    """
    path = f"{directory}/limits"
    descriptor = open_shared(path, os.O_RDONLY)
    try:
        image = _image(path, descriptor)
    finally:
        os.close(descriptor)
    view = ffi.from_buffer("unsigned char[]", image)
    status = lib.limits_check_header(view, len(image))
    if status != 0:
        raise RegionError(f"{path} is damaged or of another layout version: {os.strerror(-status)}")
    header = ffi.cast("struct vgpu_limits_header *", view)
    return int(lib.usage_file_bytes(header.device_capacity))


def slice_bytes(device_capacity: int = 1) -> int:
    """Returns what the files of one slice take."""
    return int(lib.limits_file_bytes(device_capacity) + lib.usage_file_bytes(device_capacity))


def read_limits(directory: Path) -> LimitsView:
    """Returns what `limits` in ``directory`` says.

    Raises:
        RegionError: it is missing, damaged, or of another layout version.
    """
    path = f"{directory}/limits"
    descriptor = open_shared(path, os.O_RDONLY)
    try:
        return _read(path, descriptor)
    finally:
        os.close(descriptor)


def _image(path: str, descriptor: int) -> bytes:
    with calls_for(path, "read"):
        return os.pread(descriptor, lib.limits_file_bytes(lib.VGPU_MAX_DEVICES) + 1, 0)


def _read(path: str, descriptor: int) -> LimitsView:
    image = _image(path, descriptor)
    view = ffi.from_buffer("unsigned char[]", image)
    head = ffi.new("struct vgpu_limits_copy *")
    devices = ffi.new("struct vgpu_device_limit[]", lib.VGPU_MAX_DEVICES)
    status = lib.limits_check_header(view, len(image))
    if status == 0:
        status = lib.limits_read(view, head, devices, lib.VGPU_MAX_DEVICES)
    if status == -errno.EPROTO:
        raise LayoutError(f"{path} is of a layout version that this version does not know")
    if status != 0:
        raise RegionError(f"{path} is damaged: {os.strerror(-status)}")
    try:
        limits = ContainerLimits(
            allocation_id=ffi.string(head.allocation_id).decode(),
            family=Family(head.family),
            devices=tuple(_device(devices[i]) for i in range(head.device_count)),
        )
    except ValueError as error:
        raise RegionError(f"{path} holds a value this version does not know: {error}") from error
    header = ffi.cast("struct vgpu_limits_header *", view)
    grants = ffi.cast("struct vgpu_grant *", view + header.grant_offset)
    modes = tuple(granted_mode(grants[i]) for i in range(head.device_count))
    return LimitsView(limits, int(head.generation), modes)


def write_limits(directory: Path, limits: ContainerLimits, held: int | None = None) -> LimitsView:
    """Changes a slice while its processes run; they see it at their next call.

    What says the same already is not written.

    Args:
        directory: where `limits` is.
        limits: the new content; the devices of before must stand first, in the same order.
        held: a descriptor of `limits` that is open for writing; without one it is opened.

    Returns:
        What the file said before.

    Raises:
        RegionBusyError: its container keeps it from being opened.
        RegionError: the file is missing or damaged.
        LayoutError: it is another version's.
        DevicesDifferError: the devices do not fit; the file is then unchanged.
    """
    path = f"{directory}/limits"
    head, devices = _encode(limits)
    with locked(directory):
        # Looked at first: who has nothing to write need not be able to.
        before = read_limits(directory) if held is None else _read(path, held)
        if before.limits == limits:
            return before
        old, new = [d.uuid for d in before.limits.devices], [d.uuid for d in limits.devices]
        if new[: len(old)] != old:
            raise DevicesDifferError(
                f"{path} names the devices {old}; a change must keep them first"
            )
        with _writable(path, held) as view:
            if lib.limits_publish(view, head, devices) != 0:
                raise DevicesDifferError(f"{path} has no room for {len(new)} devices")
        return before


def renew_uncapped(directory: Path, device_index: int, held: int) -> None:
    """Has the processes of a slice without a cap look at `limits` again at their next launch.

    A launch without a cap looks at nothing else than whether `limits` is another, so the same is
    written once more. Nothing is done where the device has a cap.

    Args:
        directory: where `limits` is.
        device_index: which of its devices.
        held: a descriptor of `limits` that is open for writing.

    Raises:
        RegionError: the file is damaged.
    """
    path = f"{directory}/limits"
    with locked(directory):
        limits = _read(path, held).limits
        if limits.devices[device_index].is_whole:
            with _writable(path, held) as view:
                lib.limits_publish(view, *_encode(limits))


@contextmanager
def _writable(path: str, held: int | None) -> Iterator[Any]:
    """Maps `limits` for writing."""
    with calls_for(path, "opened again"):
        descriptor = open_limits(path) if held is None else os.dup(held)
    try:
        with calls_for(path, "mapped"):
            mapped = mmap.mmap(descriptor, 0)
        with mapped as area:
            view = ffi.from_buffer("unsigned char[]", area, require_writable=True)
            try:
                yield view
            finally:
                ffi.release(view)
    except ValueError as error:
        raise RegionError(f"{path} is empty") from error
    finally:
        os.close(descriptor)


def _encode(limits: ContainerLimits) -> tuple[Any, Any]:
    head = ffi.new("struct vgpu_limits_copy *")
    head.device_count = len(limits.devices)
    head.family = int(limits.family)
    head.allocation_id = _fixed(limits.allocation_id, lib.VGPU_ID_BYTES)
    devices = ffi.new("struct vgpu_device_limit[]", max(1, len(limits.devices)))
    for row, device in zip(devices, limits.devices, strict=False):
        row.uuid = _fixed(device.uuid, lib.VGPU_UUID_BYTES)
        row.memory_limit_bytes = device.memory_limit_bytes
        row.physical_bytes = device.physical_bytes or device.memory_limit_bytes
        row.context_bytes = device.context_bytes
        row.block_bytes = device.block_bytes
        row.unaccounted_bytes = device.unaccounted_bytes
        row.core_percent = device.core_percent
        row.compute_mode = int(device.compute_mode)
        row.weight = device.weight
        row.mps_thread_percentage = device.mps_thread_percentage
        row.mps_pinned_bytes = device.mps_pinned_bytes
        row.mps_pipe_directory = _fixed(
            device.mps_pipe_directory, ffi.sizeof(row.mps_pipe_directory)
        )
    return head, devices


def _fixed(text: str, room: int) -> bytes:
    raw = text.encode()
    if len(raw) >= room:
        raise RegionError(f"{text!r} is too long: at most {room - 1} bytes fit")
    return raw


def _device(row: Any) -> DeviceLimit:
    return DeviceLimit(
        uuid=ffi.string(row.uuid).decode(),
        memory_limit_bytes=row.memory_limit_bytes,
        physical_bytes=row.physical_bytes,
        context_bytes=row.context_bytes,
        block_bytes=row.block_bytes,
        unaccounted_bytes=row.unaccounted_bytes,
        core_percent=row.core_percent,
        compute_mode=ComputeMode(row.compute_mode),
        weight=row.weight,
        mps_thread_percentage=row.mps_thread_percentage,
        mps_pinned_bytes=row.mps_pinned_bytes,
        mps_pipe_directory=ffi.string(row.mps_pipe_directory).decode(),
    )
