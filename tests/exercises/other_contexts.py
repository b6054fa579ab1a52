"""Exercises of green contexts, and of contexts that are counted by their references."""

import ctypes
from ctypes import byref, c_uint64, c_void_p

from support.exercise.driver import MIB, Driver, exercise

RESOURCE_SM = 1
RESOURCE_BYTES = 256  # more than CUdevResource has


@exercise("cuGreenCtxCreate", "cuGreenCtxDestroy", context=False)
def green_contexts(driver: Driver) -> None:
    resource, described = (ctypes.c_char * RESOURCE_BYTES)(), c_void_p()
    green, inner, address = c_void_p(), c_void_p(), c_uint64()
    driver.check("cuInit", 0)
    driver.check("cuDeviceGetDevResource", 0, byref(resource), RESOURCE_SM)
    driver.check("cuDevResourceGenerateDesc", byref(described), byref(resource), 1)
    green_bytes = driver.sizes.green_context_bytes
    with driver.charged(0):
        both_bytes = driver.sizes.context_bytes + green_bytes  # the primary one too
        with driver.charged(both_bytes, "context"):
            driver.check("cuGreenCtxCreate", byref(green), described, 0, 1)
        driver.check("cuCtxFromGreenCtx", byref(inner), green)
        driver.check("cuCtxPushCurrent_v2", inner)
        driver.check("cuMemAlloc_v2", byref(address), MIB)
        with driver.full(left_bytes=green_bytes - 1):
            driver.refuse("cuGreenCtxCreate", byref(c_void_p()), described, 0, 1)
        driver.check("cuCtxPopCurrent_v2", byref(inner))
        driver.check("cuGreenCtxDestroy", green)


@exercise("cuCtxDetach", context=False)
def referenced_context(driver: Driver) -> None:
    context, same, address = c_void_p(), c_void_p(), c_uint64()
    driver.check("cuInit", 0)
    with driver.charged(0):
        driver.check("cuCtxCreate_v2", byref(context), 0, 0)
        driver.check("cuMemAlloc_v2", byref(address), MIB)
        driver.check("cuCtxAttach", byref(same), 0)
        with driver.charged(0):
            driver.check("cuCtxDetach", context)
        driver.check("cuCtxDetach", context)
