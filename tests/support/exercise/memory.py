"""Device memory and arrays with known bytes, for exercises; their own calls are not noted."""

import ctypes
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import Driver

BYTE_FORMAT = 1


class FlatForm(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = (
        ("width", c_size_t),
        ("height", c_size_t),
        ("format", c_uint),
        ("channels", c_uint),
    )


class Memory:
    """Pieces of device memory and arrays of bytes; read and written past the calls that count."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._addresses: list[c_uint64] = []
        self._arrays: list[c_void_p] = []

    def plain(self, content: bytes) -> int:
        """Returns the address of memory that holds these bytes."""
        address = c_uint64()
        self._must("cuMemAlloc_v2", byref(address), len(content))
        self._must("cuMemcpyHtoD_v2", address, content, len(content))
        self._addresses.append(address)
        return address.value

    def array(self, width: int, height: int = 0) -> c_void_p:
        """Returns an array of bytes."""
        array = c_void_p()
        self._must("cuArrayCreate_v2", byref(array), byref(FlatForm(width, height, BYTE_FORMAT, 1)))
        self._arrays.append(array)
        return array

    def read(self, address: int, bytes: int) -> bytes:
        """Returns what stands there, and puts zeros in its place."""
        found = ctypes.create_string_buffer(bytes)
        self._must("cuMemcpyDtoH_v2", found, address, bytes)
        self._must("cuMemcpyHtoD_v2", address, b"\0" * bytes, bytes)
        return found.raw

    def close(self) -> None:
        """Frees it all."""
        for address in self._addresses:
            self._must("cuMemFree_v2", address)
        for array in self._arrays:
            self._must("cuArrayDestroy", array)

    def _must(self, symbol: str, *arguments: Any) -> None:
        noted = set(self.driver.called)
        self.driver.check(symbol, *arguments)
        self.driver.called = noted
