"""Exercises of start and lookup."""

from ctypes import byref, c_int, c_void_p
from pathlib import Path
from typing import Any

from support.exercise.driver import Driver, exercise

CUDA_11_4, CUDA_12_0 = 11040, 12000  # the first simulated drivers that have them
DEFAULT_FLAGS = 0


@exercise("cuInit", context=False)
def start(driver: Driver) -> None:
    usage = str(driver.directory / "usage")
    assert usage not in Path("/proc/self/maps").read_text()
    driver.check("cuInit", 0)
    assert usage in Path("/proc/self/maps").read_text()


def _lookup(driver: Driver, symbol: str, version: int, *more: Any) -> None:
    for name, is_hooked in ((b"cuMemAlloc", True), (b"cuDeviceGetName", False)):
        function = c_void_p()
        driver.check(symbol, name, byref(function), version, DEFAULT_FLAGS, *more)
        assert function.value is not None
        assert driver.is_hooked(function.value) == is_hooked


@exercise("cuGetProcAddress")
def lookup(driver: Driver) -> None:
    _lookup(driver, "cuGetProcAddress", CUDA_11_4)


@exercise("cuGetProcAddress_v2")
def lookup_with_a_status(driver: Driver) -> None:
    status = c_int(-1)
    _lookup(driver, "cuGetProcAddress_v2", CUDA_12_0, byref(status))
    assert status.value == 0
