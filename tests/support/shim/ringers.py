"""A tenant of an arbiter played from Python: stores its row of `usage`, rings, reads its grant."""

import ctypes
import errno
import mmap
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from libvgpu._native import ffi, lib
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, ring_path

_SYS_FUTEX, _FUTEX_WAIT = 202, 0

#: Of every tenant that is made here.
WEIGHT = 20


class Grant(NamedTuple):
    number: int
    start_ns: int
    end_ns: int
    beat_ns: int
    mode: int
    window: int


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))


def make_tenant(directory: Path, device_count: int = 1) -> Path:
    """Makes a slice with a ring."""
    devices = tuple(DeviceLimit(f"GPU-{i}", 1 << 30, weight=WEIGHT) for i in range(device_count))
    create(directory, ContainerLimits(directory.name, Family.VGPU, devices))
    return directory


class Ringer:
    """Plays the tenant in ``directory`` on the device ``index``."""

    def __init__(self, directory: Path, index: int = 0) -> None:
        self.directory, self.index = directory, index
        with open(directory / "usage", "r+b") as file:
            self._usage_map = mmap.mmap(file.fileno(), 0)
        with open(directory / "limits", "rb") as file:
            self._limits_map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._usage = ffi.from_buffer("unsigned char[]", self._usage_map, require_writable=True)
        self._limits = ffi.from_buffer("unsigned char[]", self._limits_map)
        header = ffi.cast("struct vgpu_limits_header *", self._limits)
        self._grant_at = header.grant_offset + index * header.grant_stride
        self.row: Any = lib.usage_device(self._usage, index)
        self._ring = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_ring()
        ffi.release(self._usage)
        ffi.release(self._limits)

    def ring(self) -> None:
        """Writes one byte.

        Raises:
            OSError: ENXIO, without an arbiter; EAGAIN, when the ring is full.
        """
        if self._ring < 0:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
            self._ring = os.open(ring_path(self.directory, self.index), flags)
        os.write(self._ring, b"!")

    def close_ring(self) -> None:
        if self._ring >= 0:
            os.close(self._ring)
            self._ring = -1

    def demand(self) -> None:
        """Wants to launch now, and rings."""
        self.row.demand_ns = time.monotonic_ns()
        self.ring()

    def grant(self) -> Grant:
        while True:
            shown = ffi.cast("struct vgpu_grant *", self._limits + self._grant_at)
            seen = Grant(
                shown.number, shown.start_ns, shown.end_ns, shown.beat_ns, shown.mode, shown.window
            )
            if seen.number % 2 == 0 and shown.number == seen.number:
                return seen

    def sleep_on(self, seen: Grant, timeout_s: float) -> bool | None:
        """Sleeps on the number of the grant ``seen``.

        Returns:
            Whether somebody ended that sleep; None where it never began, since there was another
            grant by then.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        address = int(ffi.cast("uintptr_t", self._limits + self._grant_at))
        timeout = _Timespec(int(timeout_s), int(timeout_s % 1 * 1e9))
        done = libc.syscall(
            ctypes.c_long(_SYS_FUTEX),
            ctypes.c_void_p(address),
            ctypes.c_int(_FUTEX_WAIT),
            ctypes.c_uint32(seen.number & 0xFFFFFFFF),
            ctypes.byref(timeout),
            None,
            0,
        )
        return None if done != 0 and ctypes.get_errno() == errno.EAGAIN else bool(done == 0)
