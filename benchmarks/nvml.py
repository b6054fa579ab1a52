"""The little that is asked of NVML, by ctypes: on a machine with a GPU and no packages, too.

The struct has the form of NVML's own `nvmlProcessInfo_v2_t`, which calls _v2 fill.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from libvgpu.errors import VgpuError

LIBRARY = "libnvidia-ml.so.1"
_INSUFFICIENT_SIZE, _FUNCTION_NOT_FOUND = 7, 13
_NOT_AVAILABLE = (1 << 64) - 1
_NAME_BYTES = 96
_CLOCK_MEMORY = 2
_MHZ = 1_000_000
_HINT = "--simulate h100 needs no GPU"


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has something of a GPU.

    Attributes:
        pid: as the driver sees it, which need not be as we do: there are PID namespaces.
        used_bytes: what it has of the memory; None where the driver does not tell.
    """

    pid: int
    used_bytes: int | None


class NvmlDevice:
    """One GPU; made by `Nvml`. Each method raises VgpuError where NVML refuses the answer."""

    def __init__(self, nvml: "Nvml", handle: ctypes.c_void_p) -> None:
        self._nvml, self._handle = nvml, handle

    def name(self) -> str:
        """Returns its model."""
        return self._text("nvmlDeviceGetName")

    def uuid(self) -> str:
        """Returns NVML's name of it, ``GPU-…``."""
        return self._text("nvmlDeviceGetUUID")

    def memory_bytes(self) -> tuple[int, int]:
        """Returns all of its memory and what is used of it, the driver's own part included."""
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", ctypes.byref(memory))
        return int(memory.total), int(memory.used)

    def memory_bytes_per_second(self) -> int:
        """Returns its bandwidth by width and clock: two transfers a clock."""
        clock_mhz = self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint(_CLOCK_MEMORY))
        return 2 * self._number("nvmlDeviceGetMemoryBusWidth") // 8 * clock_mhz * _MHZ

    def processes(self) -> list[GpuProcess]:
        """Returns the processes that compute on it."""
        call = "nvmlDeviceGetComputeRunningProcesses_v2"  # `_v3` differs from driver to driver
        room = 64
        while True:
            count = ctypes.c_uint(room)
            rows = (_Process * room)()
            status = self._nvml.status(call, self._handle, ctypes.byref(count), rows)
            if status != _INSUFFICIENT_SIZE:
                break
            room *= 2  # not what it says: one more may come meanwhile
        self._nvml.check(call, status)
        return [
            GpuProcess(int(row.pid), None if row.used == _NOT_AVAILABLE else int(row.used))
            for row in rows[: count.value]
        ]

    def _text(self, name: str) -> str:
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self._call(name, text, ctypes.c_uint(_NAME_BYTES))
        return text.value.decode()

    def _number(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_uint()
        self._call(name, *arguments, ctypes.byref(value))
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        self._nvml.check(name, self._nvml.status(name, self._handle, *arguments))


class Nvml:
    """NVML while it is open; made by `open_nvml`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.nvmlErrorString.restype = ctypes.c_char_p

    def device_count(self) -> int:
        """Returns how many GPUs there are.

        Raises:
            VgpuError: NVML does not say.
        """
        count = ctypes.c_uint()
        name = "nvmlDeviceGetCount_v2"
        self.check(name, self.status(name, ctypes.byref(count)))
        return count.value

    def device(self, index: int) -> NvmlDevice:
        """Returns a GPU by its index.

        Raises:
            VgpuError: there is none.
        """
        handle = ctypes.c_void_p()
        name = "nvmlDeviceGetHandleByIndex_v2"
        self.check(name, self.status(name, ctypes.c_uint(index), ctypes.byref(handle)))
        return NvmlDevice(self, handle)

    def driver_version(self) -> str:
        """Returns the driver's version.

        Raises:
            VgpuError: NVML does not say.
        """
        text = ctypes.create_string_buffer(_NAME_BYTES)
        name = "nvmlSystemGetDriverVersion"
        self.check(name, self.status(name, text, ctypes.c_uint(_NAME_BYTES)))
        return text.value.decode()

    def status(self, name: str, *arguments: Any) -> int:
        """Calls a function and returns what it answers; an older driver may lack it."""
        function = getattr(self._library, name, None)
        return int(function(*arguments)) if function else _FUNCTION_NOT_FOUND

    def check(self, name: str, status: int) -> None:
        """Raises VgpuError where a status is none of success."""
        if status != 0:
            why = self._library.nvmlErrorString(status).decode()
            raise VgpuError(f"NVML cannot be used: {name} answers {status} ({why})", hint=_HINT)


@contextmanager
def open_nvml() -> Iterator[Nvml]:
    """Gives NVML, and closes it.

    Raises:
        VgpuError: it is not there, or does not start.
    """
    try:
        nvml = Nvml(ctypes.CDLL(LIBRARY))
    except OSError as error:
        raise VgpuError(f"there is no {LIBRARY}: {error}", hint=_HINT) from None
    nvml.check("nvmlInit_v2", nvml.status("nvmlInit_v2"))
    try:
        yield nvml
    finally:
        nvml.status("nvmlShutdown")
