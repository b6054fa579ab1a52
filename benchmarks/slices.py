"""Slices and their arbiter for a figure that must run where Python has no cffi.

What is in the files, and who may use the GPU when, is decided by the same C as everywhere. Here it
is compiled into a small library (``native/slice_host.c``) and reached by ctypes; the files are made
by `libvgpu.region_files`. A slice has one device.
"""

import ctypes
import functools
import os
import tempfile
from pathlib import Path
from types import TracebackType

from libvgpu._build import build_library
from libvgpu._sources import ARBITER_SOURCES, PURE_SHIM_SOURCES, sources
from libvgpu.errors import RegionError
from libvgpu.limits import ContainerLimits
from libvgpu.region_files import make_files, open_for_arbiter

_SOURCE = "benchmarks/native/slice_host.c"


class _Limits(ctypes.Structure):
    """``struct slice_limits``."""

    _fields_ = (
        ("allocation_id", ctypes.c_char_p),
        ("uuid", ctypes.c_char_p),
        ("memory_limit_bytes", ctypes.c_uint64),
        ("context_bytes", ctypes.c_uint64),
        ("core_percent", ctypes.c_uint32),
        ("compute_mode", ctypes.c_uint32),
        ("weight", ctypes.c_uint32),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    """Builds and loads the library.

    Raises:
        VgpuError: there is no compiler, or it fails.
    """
    files = [_SOURCE, *PURE_SHIM_SOURCES, *sources(*ARBITER_SOURCES)]
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as name:
        path = Path(name, "slice_host.so")
        build_library(path, files, "-fvisibility=default")
        library = ctypes.CDLL(str(path))
    library.limits_file_bytes.restype = ctypes.c_uint64
    library.usage_file_bytes.restype = ctypes.c_uint64
    library.slice_used_bytes.restype = ctypes.c_int64
    library.slice_used_bytes.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    library.arbiter_add.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * 3, ctypes.c_uint32]
    library.arbiter_stop.argtypes = [ctypes.c_void_p]
    return library


def create(directory: Path, limits: ContainerLimits) -> None:
    """Makes the files of a slice, as `libvgpu.region.create` does.

    Args:
        directory: must not exist; its parent must.
        limits: of the family vgpu, with one device without overcommit or a share of MPS.

    Raises:
        RegionError: the directory exists, the disk is full, or a name is too long.
        VgpuError: there is no compiler, or it fails.
    """
    library = _library()
    (device,) = limits.devices
    image = ctypes.create_string_buffer(library.limits_file_bytes(1))
    head = ctypes.create_string_buffer(library.slice_usage_head_bytes())
    native = _Limits(
        limits.allocation_id.encode(),
        device.uuid.encode(),
        device.memory_limit_bytes,
        device.context_bytes,
        device.core_percent,
        int(device.compute_mode),
        device.weight,
    )
    if library.slice_contents(image, head, ctypes.byref(native)) != 0:
        raise RegionError(f"{limits.allocation_id!r} or {device.uuid!r} is too long for a slice")
    make_files(directory, image.raw, head.raw, library.usage_file_bytes(1), 1)


def used_bytes(directory: Path) -> int:
    """Returns what the ledger says that the slice holds.

    Raises:
        RegionError: `usage` is missing or damaged.
        VgpuError: there is no compiler, or it fails.
    """
    path = directory / "usage"
    try:
        image = path.read_bytes()
    except OSError as error:
        raise RegionError(f"{path} cannot be read: {error.strerror}") from error
    found = int(_library().slice_used_bytes(image, len(image)))
    if found < 0:
        raise RegionError(f"{path} is damaged: {os.strerror(-found)}")
    return found


class Arbiter:
    """Shares one GPU among slices by weight, as `libvgpu.arbitration.Arbiter` does; a context
    manager."""

    def __init__(self) -> None:
        """Starts the thread.

        Raises:
            RegionError: there is no memory, thread or descriptor left.
            VgpuError: there is no compiler, or it fails.
        """
        self._arbiter = ctypes.c_void_p()
        status = _library().arbiter_start(ctypes.byref(self._arbiter))
        if status != 0:
            raise RegionError(f"an arbiter cannot be started: {os.strerror(-status)}")

    def __enter__(self) -> "Arbiter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _library().arbiter_stop(self._arbiter)

    def add(self, directory: Path, device_index: int) -> None:
        """Takes a slice in, who launches as the arbiter says from now on.

        Raises:
            RegionError: a file is missing or damaged, or there is no room.
        """
        limits, usage, ring = open_for_arbiter(directory, device_index)
        index = _library().arbiter_add(self._arbiter, limits, usage, ring, device_index)
        os.close(limits)
        if index < 0:
            os.close(usage)
            os.close(ring)
            raise RegionError(f"{directory} gets no arbiter: {os.strerror(-index)}")
