"""Exercises of memory pools: charged for what they keep, wherever the program has them from."""

from ctypes import byref, c_uint64, c_void_p

from support.exercise.driver import MIB, Driver, exercise
from support.exercise.pool import ON_DEVICE, ON_HOST, PINNED, Location, properties

RELEASE_THRESHOLD = 4
PIECE = 8 * MIB


def _keeps(driver: Driver, pool: c_void_p, end: str, *arguments: int) -> None:
    """Memory that was freed stays charged while the pool keeps it, until ``end``."""
    address, threshold = c_uint64(), c_uint64(1 << 60)
    driver.check("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, byref(threshold))
    kept_bytes = driver.sizes.of_pool(PIECE)
    with driver.charged(kept_bytes, "async", given=True):
        driver.check("cuMemAllocFromPoolAsync", byref(address), PIECE, pool, None)
        driver.check("cuMemFreeAsync", address, None)
        driver.check("cuStreamSynchronize", None)
    with driver.charged(-kept_bytes, "async", given=True):
        driver.check(end, pool, *arguments)


@exercise("cuMemPoolCreate", "cuMemPoolTrimTo", "cuMemPoolDestroy")
def own_pool(driver: Driver) -> None:
    pool = c_void_p()
    driver.check("cuMemPoolCreate", byref(pool), byref(properties()))
    _keeps(driver, pool, "cuMemPoolTrimTo", 0)
    _keeps(driver, pool, "cuMemPoolDestroy")


@exercise("cuMemGetDefaultMemPool", "cuMemGetMemPool")
def pools_of_a_place(driver: Driver) -> None:
    pool = c_void_p()
    for symbol in ("cuMemGetDefaultMemPool", "cuMemGetMemPool"):
        driver.check(symbol, byref(pool), byref(Location(ON_DEVICE, 0)), PINNED)
        _keeps(driver, pool, "cuMemPoolTrimTo", 0)


@exercise("cuMemGetDefaultMemPool", "cuMemGetMemPool")
def pools_of_the_host(driver: Driver) -> None:
    pool, address = c_void_p(), c_uint64()
    driver.needs_call("cuMemGetDefaultMemPool", "this driver has no pools of the host's memory")
    for symbol in ("cuMemGetDefaultMemPool", "cuMemGetMemPool"):
        driver.check(symbol, byref(pool), byref(Location(ON_HOST, 0)), PINNED)
        with driver.charged(0):
            driver.check("cuMemAllocFromPoolAsync", byref(address), PIECE, pool, None)
        driver.check("cuMemFreeAsync", address, None)
        driver.check("cuStreamSynchronize", None)
