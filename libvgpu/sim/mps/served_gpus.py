"""Which GPUs a daemon serves, and taking them for a server."""

import fcntl
import os
import struct
from pathlib import Path

from .wire import MPS_CONNECTION_FAILED, MPS_SERVER_NOT_READY, MpsControlError, ServerError

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
        if entry.isdigit() and int(entry) < len(uuids):
            chosen.append(uuids[int(entry)])
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
        ServerError: the file cannot be used, or another server has one of the devices.
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
    return file_fd
