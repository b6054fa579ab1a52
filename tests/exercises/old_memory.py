"""Exercises of the memory calls of CUDA 3 and before, whose addresses have 32 bits.

No driver has a context for them any more: what is asked for is charged, cannot be had, and is given
back. The slice's own refusals are those that it counts.
"""

from ctypes import byref, c_size_t, c_uint, c_uint64

from support.exercise.driver import MIB, Driver, exercise


def _taken(driver: Driver, symbol: str, bytes: int, *arguments: object) -> None:
    """The driver refuses, unless the slice is full: then the slice does."""
    refused = driver.own().refused_count
    driver.outdated(symbol, *arguments)
    assert driver.own().refused_count == refused
    with driver.full(left_bytes=bytes - 1):
        driver.refuse(symbol, *arguments)
    assert driver.own().refused_count == refused + 1


@exercise("cuMemAlloc", "cuMemFree")
def old_plain_memory(driver: Driver) -> None:
    wide = c_uint64()
    _taken(driver, "cuMemAlloc", MIB, byref(c_uint()), MIB)
    driver.check("cuMemAlloc_v2", byref(wide), MIB)
    driver.outdated("cuMemFree", wide.value & 0xFFFFFFFF)  # not its address: only half of it
    driver.check("cuMemFree_v2", wide)


@exercise("cuMemAllocPitch")
def old_pitched_memory(driver: Driver) -> None:
    form = (1001, 512, 4)
    _taken(driver, "cuMemAllocPitch", 1001 * 512, byref(c_uint()), byref(c_uint()), *form)


@exercise("cuMemGetInfo", "cuDeviceTotalMem")
def old_totals(driver: Driver) -> None:
    """The whole of a device can still be asked for: that needs no context."""
    device_total, wide_free, wide_total = c_uint(), c_size_t(), c_size_t()
    driver.outdated("cuMemGetInfo", byref(c_uint()), byref(c_uint()))
    driver.check("cuDeviceTotalMem", byref(device_total), 0)
    driver.check("cuMemGetInfo_v2", byref(wide_free), byref(wide_total))
    assert device_total.value == wide_total.value == driver.limit_bytes
