"""An arbiter that a test plays by hand: it writes grants into `limits` and hears the ring."""

import mmap
import os
import threading
import time
from pathlib import Path
from typing import Any, Self

from libvgpu._native import ffi, lib
from libvgpu.region import ring_path

MODES = {
    "none": lib.VGPU_GRANT_NONE,
    "free": lib.VGPU_GRANT_FREE,
    "windows": lib.VGPU_GRANT_WINDOWS,
}
BEAT_SECONDS = 0.005


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Grants:
    """Grants one device of a slice; the beat goes on by itself until ``die`` or the end."""

    def __init__(self, directory: Path, device_index: int = 0) -> None:
        self.directory, self.device_index = directory, device_index
        self.ring = os.open(ring_path(directory, device_index), os.O_RDONLY | os.O_NONBLOCK)
        os.chmod(directory / "limits", 0o644)
        with (directory / "limits").open("r+b") as file:
            self.limits = mmap.mmap(file.fileno(), 0)
        with (directory / "usage").open("rb") as file:
            self.usage = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        header: Any = ffi.cast("struct vgpu_limits_header *", ffi.from_buffer(self.limits))
        at = ffi.cast("char *", header) + header.grant_offset
        at += device_index * header.grant_stride
        self.grant: Any = ffi.cast("struct vgpu_grant *", at)
        self.publishing = threading.Lock()
        self.is_over = threading.Event()
        self.beater = threading.Thread(target=self._beat)
        self.beater.start()

    def _beat(self) -> None:
        while not self.is_over.wait(BEAT_SECONDS):
            self.grant.beat_ns = now_ns()

    def publish(
        self, mode: str, *, start_ns: int = 0, end_ns: int = 0, is_new: bool = False
    ) -> int:
        """Publishes a grant and returns its window's number."""
        with self.publishing:
            self.grant.number += 1
            self.grant.mode = MODES[mode]
            self.grant.start_ns, self.grant.end_ns = start_ns, end_ns
            self.grant.beat_ns = now_ns()
            self.grant.window += is_new
            self.grant.number += 1
            return int(self.grant.window)

    def open(self, seconds: float) -> int:
        """Opens a new window now."""
        start_ns = now_ns()
        return self.publish(
            "windows", start_ns=start_ns, end_ns=start_ns + int(seconds * 1e9), is_new=True
        )

    def told(self) -> Any:
        """What the container says of the device: struct vgpu_usage_device."""
        header: Any = ffi.cast("struct vgpu_usage_header *", ffi.from_buffer(self.usage))
        at = header.device_offset + self.device_index * header.device_stride
        return ffi.cast("struct vgpu_usage_device *", ffi.cast("char *", header) + at)

    def heard(self) -> int:
        """How often it has rung since the last call."""
        try:
            return len(os.read(self.ring, 65536))
        except BlockingIOError:
            return 0

    def hang(self) -> None:
        """As a stopped arbiter does: nothing is published any more, but the ring stays open."""
        self.is_over.set()
        self.beater.join()

    def die(self) -> None:
        """As a killed arbiter does: nothing is published any more, and nobody reads the ring."""
        self.hang()
        if self.ring >= 0:
            os.close(self.ring)
            self.ring = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.die()


NONE, FREE, WINDOWS = MODES["none"], MODES["free"], MODES["windows"]


def grant_mode(directory: Path, device_index: int = 0) -> int:
    """Returns the mode of a slice's grant (VGPU_GRANT_*), read as its processes read it."""
    image = (directory / "limits").read_bytes()
    view = ffi.from_buffer("unsigned char[]", image)
    header = ffi.cast("struct vgpu_limits_header *", view)
    at = header.grant_offset + device_index * header.grant_stride
    return int(ffi.cast("struct vgpu_grant *", view + at).mode)
