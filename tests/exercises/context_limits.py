"""Exercise of the limits of a context."""

from ctypes import byref, c_size_t

from support.exercise import MIB, Driver, exercise

STACK_SIZE, PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE = 0, 1, 2


@exercise("cuCtxSetLimit")
def limits_of_a_context(driver: Driver) -> None:
    for limit, more_bytes in (
        (MALLOC_HEAP_SIZE, MIB),
        (PRINTF_FIFO_SIZE, MIB),
        (STACK_SIZE, 16),
    ):
        default, kept = c_size_t(), c_size_t()
        driver.check("cuCtxGetLimit", byref(default), limit)
        taken, charged = driver.device_bytes(), driver.used()
        driver.check("cuCtxSetLimit", limit, default.value + more_bytes)
        bytes = driver.used() - charged
        assert bytes == driver.device_bytes() - taken > 0
        with driver.full(left_bytes=bytes - 1):
            driver.refuse("cuCtxSetLimit", limit, default.value + 2 * more_bytes)
        driver.check("cuCtxGetLimit", byref(kept), limit)
        assert kept.value == default.value + more_bytes
        with driver.charged(-bytes, "other"):
            driver.check("cuCtxSetLimit", limit, default.value)
