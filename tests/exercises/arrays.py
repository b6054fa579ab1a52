"""Exercises of arrays: charged what the driver takes for them, returned when they end."""

import ctypes
from ctypes import byref, c_size_t, c_uint, c_void_p
from typing import Any

from support.exercise.driver import Driver, exercise

FLOAT = 0x20
WIDTH, HEIGHT, DEPTH, CHANNELS, LEVELS = 1000, 500, 3, 2, 4


def _fields(names: str, size: Any) -> list[tuple[str, Any]]:
    words = ("Format", "NumChannels", "Flags")
    return [(name, c_uint if name in words else size) for name in names.split()]


class Flat(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = _fields("Width Height Format NumChannels", c_size_t)


class FlatOld(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR_v1."""

    _fields_ = _fields("Width Height Format NumChannels", c_uint)


class Deep(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = _fields("Width Height Depth Format NumChannels Flags", c_size_t)


class DeepOld(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR_v1."""

    _fields_ = _fields("Width Height Depth Format NumChannels Flags", c_uint)


FLAT = (WIDTH, HEIGHT, FLOAT, CHANNELS)
DEEP = (WIDTH, HEIGHT, DEPTH, FLOAT, CHANNELS, 0)


def _made(driver: Driver, create: str, destroy: str, form: ctypes.Structure, *more: int) -> None:
    array = c_void_p()
    taken, charged = driver.device_bytes(), driver.used("array")
    driver.check(create, byref(array), byref(form), *more)
    bytes = driver.used("array") - charged
    assert bytes >= WIDTH * HEIGHT * 4 * CHANNELS
    given, most = driver.device_bytes() - taken, driver.sizes.of_blocks(bytes)
    # Before CUDA 11.6 nobody can ask what an array takes, and its bound is charged.
    assert given == most or (given < most and not driver.has("cuArrayGetMemoryRequirements"))
    with driver.full(left_bytes=bytes - 1):
        driver.refuse(create, byref(c_void_p()), byref(form), *more)
    with driver.charged(-bytes, "array"):
        driver.check(destroy, array)
    with driver.full(left_bytes=bytes):
        driver.check(create, byref(array), byref(form), *more)
        driver.check(destroy, array)


@exercise("cuArrayCreate", "cuArrayCreate_v2", "cuArrayDestroy")
def flat_arrays(driver: Driver) -> None:
    driver.outdated("cuArrayCreate", byref(c_void_p()), byref(FlatOld(*FLAT)))
    _made(driver, "cuArrayCreate_v2", "cuArrayDestroy", Flat(*FLAT))


@exercise("cuArray3DCreate", "cuArray3DCreate_v2", "cuArrayDestroy")
def deep_arrays(driver: Driver) -> None:
    driver.outdated("cuArray3DCreate", byref(c_void_p()), byref(DeepOld(*DEEP)))
    _made(driver, "cuArray3DCreate_v2", "cuArrayDestroy", Deep(*DEEP))


@exercise("cuMipmappedArrayCreate", "cuMipmappedArrayDestroy")
def mipmapped_arrays(driver: Driver) -> None:
    _made(driver, "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", Deep(*DEEP), LEVELS)
