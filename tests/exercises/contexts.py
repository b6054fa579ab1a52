"""Exercises of contexts: charged before the driver makes them, with all they take along."""

from ctypes import byref, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import MIB, Driver, exercise


def _created(driver: Driver, create: str, destroy: str, *arguments: Any) -> None:
    context, address = c_void_p(), c_uint64()
    before = driver.used()
    with driver.charged(driver.sizes.context_bytes, "context"):
        driver.check(create, byref(context), *arguments)
    if create != "cuCtxCreate" or driver.sizes.codes["cuMemAlloc_v2 after cuCtxCreate"] == 0:
        driver.check("cuMemAlloc_v2", byref(address), MIB)
    driver.check(destroy, context)  # with what was allocated in it
    assert driver.used() == before
    with driver.full(left_bytes=driver.sizes.context_bytes - 1):
        driver.refuse(create, byref(c_void_p()), *arguments)


@exercise("cuCtxCreate", "cuCtxDestroy", context=False)
def contexts_of_old_calls(driver: Driver) -> None:
    driver.needs_call(
        "cuCtxCreate", "this driver makes no contexts for programs of before CUDA 3.2"
    )
    driver.check("cuInit", 0)
    _created(driver, "cuCtxCreate", "cuCtxDestroy", 0, 0)


@exercise("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxDestroy_v2", context=False)
def created_contexts(driver: Driver) -> None:
    driver.check("cuInit", 0)
    _created(driver, "cuCtxCreate_v2", "cuCtxDestroy_v2", 0, 0)
    _created(driver, "cuCtxCreate_v3", "cuCtxDestroy_v2", None, 0, 0, 0)


@exercise("cuCtxCreate_v4", context=False)
def created_context_with_parameters(driver: Driver) -> None:
    driver.check("cuInit", 0)
    _created(driver, "cuCtxCreate_v4", "cuCtxDestroy_v2", None, 0, 0)


def _primary(driver: Driver, end: str, ends_at_once: bool) -> None:
    context, address = c_void_p(), c_uint64()
    with driver.charged(0):
        with driver.charged(driver.sizes.context_bytes, "context"):
            driver.check("cuDevicePrimaryCtxRetain", byref(context), 0)
            driver.check("cuDevicePrimaryCtxRetain", byref(context), 0)  # the same one
        driver.check("cuCtxPushCurrent_v2", context)
        driver.check("cuMemAlloc_v2", byref(address), MIB)
        driver.check("cuCtxPopCurrent_v2", byref(context))
        if not ends_at_once:
            with driver.charged(0):
                driver.check(end, 0)
        driver.check(end, 0)


@exercise(
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset",
    "cuDevicePrimaryCtxReset_v2",
    context=False,
)
def primary_context(driver: Driver) -> None:
    driver.check("cuInit", 0)
    with driver.full(left_bytes=driver.sizes.context_bytes - 1):
        driver.refuse("cuDevicePrimaryCtxRetain", byref(c_void_p()), 0)
    _primary(driver, "cuDevicePrimaryCtxRelease", ends_at_once=False)
    _primary(driver, "cuDevicePrimaryCtxRelease_v2", ends_at_once=False)
    _primary(driver, "cuDevicePrimaryCtxReset", ends_at_once=True)
    _primary(driver, "cuDevicePrimaryCtxReset_v2", ends_at_once=True)
