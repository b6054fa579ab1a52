"""Exercises of plain and stream-ordered memory."""

from ctypes import byref, c_size_t, c_uint64, c_void_p

from support.exercise.driver import MIB, Driver, exercise

ATTACH_GLOBAL = 1
PIECE = 5 * MIB


@exercise("cuMemAlloc_v2", "cuMemFree_v2")
def plain_memory(driver: Driver) -> None:
    address, bytes = c_uint64(), driver.sizes.of_blocks(PIECE)
    with driver.charged(bytes, "plain", given=True):
        driver.check("cuMemAlloc_v2", byref(address), bytes)
    with driver.full():
        driver.refuse("cuMemAlloc_v2", byref(c_uint64()), 1)
    with driver.charged(-bytes, "plain", given=True):
        driver.check("cuMemFree_v2", address)


@exercise("cuMemAllocManaged", "cuMemFree_v2")
def managed_memory(driver: Driver) -> None:
    address, bytes = c_uint64(), driver.sizes.of_blocks(PIECE)
    with driver.charged(bytes, "managed"):
        driver.check("cuMemAllocManaged", byref(address), PIECE, ATTACH_GLOBAL)
    with driver.full():
        driver.refuse("cuMemAllocManaged", byref(c_uint64()), PIECE, ATTACH_GLOBAL)
    with driver.charged(-bytes, "managed"):
        driver.check("cuMemFree_v2", address)


@exercise("cuMemAllocPitch_v2", "cuMemFree_v2")
def pitched_memory(driver: Driver) -> None:
    width_bytes, height = 1001, 4100  # 2 blocks of 2 MiB as asked, 3 as rows of 1024 bytes
    address, pitch = c_uint64(), c_size_t()
    before = driver.used("plain")
    driver.check("cuMemAllocPitch_v2", byref(address), byref(pitch), width_bytes, height, 4)
    assert pitch.value > width_bytes
    bytes = driver.sizes.of_blocks(pitch.value * height)
    assert driver.used("plain") - before == bytes
    # What is asked for would fit, what the driver's rows take does not.
    with driver.full(left_bytes=bytes - 1):
        driver.refuse(
            "cuMemAllocPitch_v2", byref(c_uint64()), byref(c_size_t()), width_bytes, height, 4
        )
    driver.check("cuMemFree_v2", address)
    assert driver.used("plain") == before


def _stream_ordered(driver: Driver, suffix: str) -> None:
    stream, pool, address = c_void_p(), c_void_p(), c_uint64()
    driver.check("cuStreamCreate", byref(stream), 0)
    driver.check("cuDeviceGetDefaultMemPool", byref(pool), 0)
    ways = (("cuMemAllocAsync", stream), ("cuMemAllocFromPoolAsync", pool, stream))
    for name, *arguments in ways:
        symbol = f"{name}{suffix}"
        kept_bytes = driver.sizes.of_pool(MIB)
        with driver.charged(kept_bytes, "async", given=True):
            driver.check(symbol, byref(address), MIB, *arguments)
        with driver.full():
            driver.refuse(symbol, byref(c_uint64()), kept_bytes, *arguments)
        driver.check(f"cuMemFreeAsync{suffix}", address, stream)
        driver.check("cuStreamSynchronize", stream)
        driver.check("cuMemPoolTrimTo", pool, 0)
    driver.check("cuStreamDestroy_v2", stream)


@exercise("cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync")
def stream_ordered_memory(driver: Driver) -> None:
    _stream_ordered(driver, "")


@exercise("cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync_ptsz", "cuMemFreeAsync_ptsz")
def stream_ordered_memory_per_thread(driver: Driver) -> None:
    _stream_ordered(driver, "_ptsz")
