"""A kernel that takes a known GPU time, for exercises; its own calls are not noted."""

import ctypes
from ctypes import byref, c_uint, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import Driver
from support.shim.cuda_client import SPIN_PTX

PER_THREAD_STREAM = 2


class Config(ctypes.Structure):
    """CUlaunchConfig, as far as the stream; no attributes."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )


class Spin:
    """One thread that spins for ``kernel_ns``, on a stream of its own."""

    def __init__(self, driver: Driver, kernel_ns: int) -> None:
        self.driver, self.kernel_ns = driver, kernel_ns
        self.stream, self.module, self.function = c_void_p(), c_void_p(), c_void_p()
        self._value = c_uint64(kernel_ns)
        self.parameters = (c_void_p * 1)(ctypes.addressof(self._value))
        self.blocks = 1
        self._must("cuStreamCreate", byref(self.stream), 0)
        self._must("cuModuleLoadData", byref(self.module), SPIN_PTX)
        self._must("cuModuleGetFunction", byref(self.function), self.module, b"spin_ns")

    @property
    def shape(self) -> tuple[int, ...]:
        """Grid, block and shared bytes, as launches take them."""
        return (self.blocks, 1, 1, 1, 1, 1, 0)

    def config(self, stream: Any) -> Config:
        grid, block = (c_uint * 3)(self.blocks, 1, 1), (c_uint * 3)(1, 1, 1)
        return Config(grid, block, 0, stream)

    def launch(self) -> None:
        self._must("cuLaunchKernel", self.function, *self.shape, self.stream, self.parameters, None)

    def wait(self) -> None:
        self._must("cuStreamSynchronize", self.stream)

    def close(self) -> None:
        self._must("cuStreamDestroy_v2", self.stream)
        self._must("cuModuleUnload", self.module)

    def _must(self, symbol: str, *arguments: Any) -> None:
        noted = set(self.driver.called)
        self.driver.check(symbol, *arguments)
        self.driver.called = noted
