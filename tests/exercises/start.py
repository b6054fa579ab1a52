"""Exercises of start and lookup."""

from ctypes import byref, c_int, c_void_p
from pathlib import Path

from support.exercise import Driver, exercise

CUDA_12_1 = 12010
DEFAULT_FLAGS = 0


@exercise("cuInit", context=False)
def start(driver: Driver) -> None:
    usage = str(driver.directory / "usage")
    assert usage not in Path("/proc/self/maps").read_text()
    driver.check("cuInit", 0)
    assert usage in Path("/proc/self/maps").read_text()


@exercise("cuGetProcAddress", "cuGetProcAddress_v2")
def lookup(driver: Driver) -> None:
    function, status = c_void_p(), c_int(-1)
    for name, is_hooked in ((b"cuMemAlloc", True), (b"cuDeviceGetName", False)):
        driver.check("cuGetProcAddress", name, byref(function), CUDA_12_1, DEFAULT_FLAGS)
        assert function.value is not None
        assert driver.is_hooked(function.value) == is_hooked
        driver.check("cuGetProcAddress_v2", name, byref(function), CUDA_12_1, DEFAULT_FLAGS,
                     byref(status))  # fmt: skip
        assert driver.is_hooked(function.value) == is_hooked
        assert status.value == 0
