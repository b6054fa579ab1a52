"""Exercise of the limits of a context."""

from ctypes import byref, c_size_t

from support.exercise.driver import Driver, exercise
from support.exercise.driver_sizes import RAISED_BYTES, STACK

MULTIPROCESSORS, THREADS_OF_EACH = 16, 39  # CUdevice_attribute
ALLOCATION_BYTES = 512


@exercise("cuCtxSetLimit")
def limits_of_a_context(driver: Driver) -> None:
    """Charged from the call on, though a device may give it only to a kernel that uses it."""
    stacks = driver.attribute(MULTIPROCESSORS) * driver.attribute(THREADS_OF_EACH)
    for limit, more_bytes in RAISED_BYTES.items():
        default, kept = c_size_t(), c_size_t()
        driver.check("cuCtxGetLimit", byref(default), limit)
        taken, charged = driver.device_bytes(), driver.used()
        driver.check("cuCtxSetLimit", limit, default.value + more_bytes)
        bytes, given = driver.used() - charged, driver.device_bytes() - taken
        assert given == driver.sizes.limit_bytes[limit]
        assert given in (0, driver.sizes.of_blocks(bytes))
        driver.check("cuCtxGetLimit", byref(kept), limit)
        raised = (kept.value - default.value) * (stacks if limit == STACK else 1)
        assert raised > 0
        assert bytes == -(-raised // ALLOCATION_BYTES) * ALLOCATION_BYTES
        with driver.full(left_bytes=bytes - 1):
            driver.refuse("cuCtxSetLimit", limit, default.value + 2 * more_bytes)
        driver.check("cuCtxGetLimit", byref(kept), limit)
        assert kept.value >= default.value + more_bytes
        with driver.charged(-bytes, "other"):
            driver.check("cuCtxSetLimit", limit, default.value)
