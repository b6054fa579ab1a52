"""Exercises of contexts: charged before the driver makes them, with all they take along."""

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_uint64, c_void_p
from typing import Any

from support.exercise import MIB, Driver, exercise
from support.exercise_runner import CONTEXT_BYTES


@contextmanager
def _almost_full(driver: Driver) -> Iterator[None]:
    """Fills the slice so that a context lacks one byte; another context holds what fills it."""
    holder = c_void_p()
    driver.check("cuCtxCreate_v2", byref(holder), 0, 0)
    with driver.full(left_bytes=CONTEXT_BYTES - 1):
        yield
    driver.check("cuCtxDestroy_v2", holder)


def _created(driver: Driver, create: str, destroy: str, *arguments: Any) -> None:
    context, address = c_void_p(), c_uint64()
    before = driver.used()
    with driver.charged(CONTEXT_BYTES, "context"):
        driver.check(create, byref(context), *arguments)
    driver.check("cuMemAlloc_v2", byref(address), MIB)
    driver.check(destroy, context)  # with what was allocated in it
    assert driver.used() == before
    with _almost_full(driver):
        driver.refuse(create, byref(c_void_p()), *arguments)


@exercise(
    "cuCtxCreate",
    "cuCtxCreate_v2",
    "cuCtxCreate_v3",
    "cuCtxDestroy",
    "cuCtxDestroy_v2",
    context=False,
)
def created_contexts(driver: Driver) -> None:
    driver.check("cuInit", 0)
    _created(driver, "cuCtxCreate", "cuCtxDestroy", 0, 0)
    _created(driver, "cuCtxCreate_v2", "cuCtxDestroy_v2", 0, 0)
    _created(driver, "cuCtxCreate_v3", "cuCtxDestroy_v2", None, 0, 0, 0)


@exercise("cuCtxCreate_v4", context=False)
def created_context_with_parameters(driver: Driver) -> None:
    driver.check("cuInit", 0)
    _created(driver, "cuCtxCreate_v4", "cuCtxDestroy_v2", None, 0, 0)


def _primary(driver: Driver, end: str, ends_at_once: bool) -> None:
    context, address = c_void_p(), c_uint64()
    with driver.charged(0):
        with driver.charged(CONTEXT_BYTES, "context"):
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
    with _almost_full(driver):
        driver.refuse("cuDevicePrimaryCtxRetain", byref(c_void_p()), 0)
    _primary(driver, "cuDevicePrimaryCtxRelease", ends_at_once=False)
    _primary(driver, "cuDevicePrimaryCtxRelease_v2", ends_at_once=False)
    _primary(driver, "cuDevicePrimaryCtxReset", ends_at_once=True)
    _primary(driver, "cuDevicePrimaryCtxReset_v2", ends_at_once=True)
