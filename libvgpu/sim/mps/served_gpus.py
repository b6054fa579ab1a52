"""Which GPUs a daemon serves, and taking them for a server."""

import ctypes
import fcntl
import os
import struct
from pathlib import Path

from .wire import (
    DEVICE_UNAVAILABLE,
    MPS_CONNECTION_FAILED,
    MPS_SERVER_NOT_READY,
    MpsControlError,
    ServerError,
    whole_number,
)

_PROHIBITED, _EXCLUSIVE_PROCESS = 2, 3
_MPS_LOCK_BASE = 0x20000000000  # SIM_MPS_BASE in sim/core/layout.h


def machine_devices(machine: Path) -> tuple[str, list[str]]:
    """Returns identifier and GPU UUIDs of a machine, from its file ``about``.

    Raises:
        MpsControlError: there is no machine.
    """
    identifier, uuids = "", []
    try:
        lines = (machine / "about").read_text().splitlines()
    except OSError as error:
        raise MpsControlError(
            f"no simulated machine in {str(machine)!r} (VGPU_SIM_MACHINE): {error.strerror}"
        ) from None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "identifier":
            identifier = value
        elif key == "device":
            uuids.append(value)
    return identifier, uuids


def served_devices(uuids: list[str], visible: str | None) -> list[str]:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES leaves, all without it.

    Raises:
        MpsControlError: it names one that the machine does not have.
    """
    if visible is None:
        return uuids
    chosen = []
    for entry in filter(None, (part.strip() for part in visible.split(","))):
        index = whole_number(entry)
        if index is not None and index < len(uuids):
            chosen.append(uuids[index])
        elif entry in uuids:
            chosen.append(entry)
        else:
            raise MpsControlError(
                f"CUDA_VISIBLE_DEVICES names {entry!r}, which is not a GPU of this machine: "
                f"it has {', '.join(uuids)}"
            )
    return chosen


def take_devices(machine: Path, uuids: list[str], devices: list[str]) -> int:
    """Locks the byte of each device in the machine's file, by which its drivers know that a server
    lives; returns the descriptor that holds the locks.

    Raises:
        ServerError: the file cannot be used, or another server or process has one of the devices.
    """
    try:
        file_fd = os.open(machine / "machine", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise ServerError(
            MPS_CONNECTION_FAILED,
            f"user {os.geteuid()} cannot use {error.filename}: {error.strerror}",
        ) from None
    for device in devices:
        lock = struct.pack(
            "hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _MPS_LOCK_BASE + uuids.index(device), 1, 0
        )
        try:
            fcntl.fcntl(file_fd, fcntl.F_OFD_SETLK, lock)
        except OSError:
            os.close(file_fd)
            raise ServerError(
                MPS_SERVER_NOT_READY, f"another MPS server serves {device} already"
            ) from None
        if not _lets_in(device):  # from now on the drivers see a server, and take it no more
            os.close(file_fd)
            raise ServerError(DEVICE_UNAVAILABLE, f"its context on {device} is refused")
    return file_fd


def _lets_in(device: str) -> bool:
    """Returns whether the compute mode lets the server's own context in, by what NVML says.

    The real one creates a context on each device before it serves; its log says so. To that, a
    process without MPS is in the way. Former clients of a server that ended are not: here.
    """
    nvml = ctypes.CDLL("libnvidia-ml.so.1")  # a container has it elsewhere than a checkout
    handle, mode = ctypes.c_void_p(), ctypes.c_int()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle))
    nvml.nvmlDeviceGetComputeMode(handle, ctypes.byref(mode))
    counts = []
    for kind in ("MPSCompute", "Compute"):  # one that ends between counts too little, not too much
        count = ctypes.c_uint()
        list_processes = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses")
        list_processes(handle, ctypes.byref(count), None)
        counts.append(count.value)
    clients, processes = counts
    is_taken = mode.value == _EXCLUSIVE_PROCESS and processes > clients
    return not is_taken and mode.value != _PROHIBITED
