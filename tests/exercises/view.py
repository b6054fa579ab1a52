"""Exercises of what shows the slice in place of the GPU."""

import ctypes
from ctypes import byref, c_size_t, c_uint, c_uint64

from support.exercise.driver import MIB, Driver, exercise
from support.exercise.nvml import handle_of, some_memory


class NvmlMemory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", c_uint64), ("free", c_uint64), ("used", c_uint64))


class NvmlMemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t."""

    _fields_ = (
        ("version", c_uint),
        ("total", c_uint64),
        ("reserved", c_uint64),
        ("free", c_uint64),
        ("used", c_uint64),
    )


@exercise("cuMemGetInfo_v2", "cuDeviceTotalMem_v2")
def totals_of_the_driver(driver: Driver) -> None:
    free, total, device_total, address = c_size_t(), c_size_t(), c_size_t(), c_uint64()
    driver.check("cuDeviceTotalMem_v2", byref(device_total), 0)
    assert device_total.value == driver.limit_bytes
    driver.check("cuMemAlloc_v2", byref(address), MIB)
    driver.check("cuMemGetInfo_v2", byref(free), byref(total))
    assert (free.value, total.value) == (driver.limit_bytes - driver.used(), driver.limit_bytes)
    driver.check("cuMemFree_v2", address)
    driver.check("cuMemGetInfo_v2", byref(free), byref(total))
    assert free.value == driver.limit_bytes - driver.used()


@exercise("cuMemGetInfo_v2")
def either_total_left_out(driver: Driver) -> None:
    """NVIDIA's driver allows it, although no page of its says so; llama.cpp does it."""
    free, total = c_size_t(), c_size_t()
    driver.check("cuMemGetInfo_v2", byref(free), None)
    driver.check("cuMemGetInfo_v2", None, byref(total))
    driver.check("cuMemGetInfo_v2", None, None)
    assert (free.value, total.value) == (driver.limit_bytes - driver.used(), driver.limit_bytes)


def _shows_the_slice(driver: Driver, symbol: str, memory: NvmlMemory | NvmlMemoryV2) -> None:
    with some_memory(driver), handle_of(driver, 0) as handle:
        driver.check(symbol, handle, byref(memory))
        used, limit = driver.used(), driver.limit_bytes
    assert (memory.total, memory.used, memory.free) == (limit, used, limit - used)


@exercise("nvmlDeviceGetMemoryInfo")
def totals_of_nvml(driver: Driver) -> None:
    _shows_the_slice(driver, "nvmlDeviceGetMemoryInfo", NvmlMemory())


@exercise("nvmlDeviceGetMemoryInfo_v2")
def totals_of_nvml_v2(driver: Driver) -> None:
    memory = NvmlMemoryV2(ctypes.sizeof(NvmlMemoryV2) | 2 << 24)
    _shows_the_slice(driver, "nvmlDeviceGetMemoryInfo_v2", memory)
    assert memory.reserved == 0
