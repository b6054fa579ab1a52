"""Exercises of the memory calls of CUDA 3 and before, whose addresses have 32 bits.

The simulated driver, as a 64-bit one, has no memory at such addresses: what is asked for is
charged, cannot be had, and is given back. The slice's own refusals are those that it counts.
"""

from ctypes import byref, c_size_t, c_uint, c_uint64

from support.exercise import MIB, OUT_OF_MEMORY, Driver, exercise


def _refusals(driver: Driver, symbol: str, *arguments: object) -> int:
    before = driver.own().refused_count
    driver.refuse(symbol, *arguments)
    return driver.own().refused_count - before


@exercise("cuMemAlloc", "cuMemFree")
def old_plain_memory(driver: Driver) -> None:
    wide = c_uint64()
    assert _refusals(driver, "cuMemAlloc", byref(c_uint()), MIB) == 0  # the driver's
    with driver.full(left_bytes=MIB - 1):
        assert _refusals(driver, "cuMemAlloc", byref(c_uint()), MIB) == 1
    driver.check("cuMemAlloc_v2", byref(wide), MIB)
    with driver.charged(0):  # not its address: only half of it
        assert driver.call("cuMemFree", wide.value & 0xFFFFFFFF) not in (0, OUT_OF_MEMORY)
    driver.check("cuMemFree_v2", wide)


@exercise("cuMemAllocPitch")
def old_pitched_memory(driver: Driver) -> None:
    form = (1001, 512, 4)
    assert _refusals(driver, "cuMemAllocPitch", byref(c_uint()), byref(c_uint()), *form) == 0
    with driver.full(left_bytes=1001 * 512 - 1):
        assert _refusals(driver, "cuMemAllocPitch", byref(c_uint()), byref(c_uint()), *form) == 1


@exercise("cuMemGetInfo", "cuDeviceTotalMem")
def old_totals(driver: Driver) -> None:
    free, total, device_total = c_uint(), c_uint(), c_uint()
    driver.check("cuMemGetInfo", byref(free), byref(total))
    driver.check("cuDeviceTotalMem", byref(device_total), 0)
    wide_free, wide_total = c_size_t(), c_size_t()
    driver.check("cuMemGetInfo_v2", byref(wide_free), byref(wide_total))
    assert total.value == device_total.value == driver.limit_bytes
    assert (free.value, total.value) == (wide_free.value, wide_total.value)
