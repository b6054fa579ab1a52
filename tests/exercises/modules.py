"""Exercises of modules and libraries: what a load takes is charged, what comes later soon after."""

import tempfile
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from support.exercise.driver import MIB, Driver, exercise
from support.shim.device_code import kernel, ptx

NO_OPTIONS = (None, None, 0, None, None, 0)


def _image(megabytes: int = 1) -> bytes:
    return ptx(
        f".visible .global .b8 big[{megabytes * MIB}];"
        ".visible .global .attribute(.managed) .b8 shown[1048576];" + kernel("one")
    )


def _module(driver: Driver, load: str, image: Any, *options: Any) -> None:
    module = c_void_p()
    with driver.full(left_bytes=2 * MIB - 1):  # first: a second one might fit next to this one
        driver.refuse(load, byref(c_void_p()), image, *options)
    with driver.charged(2 * MIB, "module"):
        driver.check(load, byref(module), image, *options)
    with driver.charged(-2 * MIB, "module"):
        driver.check("cuModuleUnload", module)


@exercise("cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleUnload")
def modules(driver: Driver) -> None:
    _module(driver, "cuModuleLoadData", _image())
    _module(driver, "cuModuleLoadDataEx", _image(), 0, None, None)
    _module(driver, "cuModuleLoadFatBinary", _image())


@exercise("cuModuleLoad")
def module_of_a_file(driver: Driver) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(_image())
        file.flush()
        _module(driver, "cuModuleLoad", file.name.encode())


def _library(driver: Driver, load: str, image: bytes, use: str, *arguments: Any) -> None:
    """What a library takes when it is first used is there before it is known: not refused.

    Drivers before CUDA 12.2 load it into contexts at once, and that can be refused.
    """
    library, mode = c_void_p(), c_int()
    driver.check("cuModuleGetLoadingMode", byref(mode))
    is_eager = mode.value == EAGER_LOADING
    kind = "module" if is_eager else "other"
    with driver.charged(2 * MIB if is_eager else 0, kind):
        driver.check(load, byref(library), image, *NO_OPTIONS)
    placed = [library if argument is library_handle else argument for argument in arguments]
    taken = 0 if is_eager or use in TAKES_NOTHING else 2 * MIB
    with driver.charged(taken, kind):
        driver.check(use, *placed)
        driver.check("cuCtxSynchronize")
    with driver.charged(0):
        driver.check(use, *placed)
        driver.check("cuCtxSynchronize")
    with driver.charged(-2 * MIB if is_eager else -taken, kind):
        driver.check("cuLibraryUnload", library)
        driver.check("cuCtxSynchronize")


EAGER_LOADING = 1  # CU_MODULE_EAGER_LOADING of cuda.h
#: A kernel is no memory before it is launched.
TAKES_NOTHING = ("cuLibraryGetKernel", "cuLibraryEnumerateKernels")
#: Stands for the library in the arguments of a call.
library_handle = object()


@exercise("cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryUnload", "cuLibraryGetKernel",
          "cuLibraryGetModule", "cuLibraryGetGlobal", "cuLibraryGetManaged")  # fmt: skip
def libraries(driver: Driver) -> None:
    handle, size = c_uint64(), c_size_t()
    uses = (
        ("cuLibraryGetKernel", byref(handle), library_handle, b"one"),
        ("cuLibraryGetModule", byref(handle), library_handle),
        ("cuLibraryGetGlobal", byref(handle), byref(size), library_handle, b"big"),
        ("cuLibraryGetManaged", byref(handle), byref(size), library_handle, b"shown"),
    )
    for use in uses:
        _library(driver, "cuLibraryLoadData", _image(), *use)
    with tempfile.NamedTemporaryFile() as file:
        file.write(_image())
        file.flush()
        _library(driver, "cuLibraryLoadFromFile", file.name.encode(), *uses[0])


@exercise("cuLibraryEnumerateKernels")
def kernels_of_a_library(driver: Driver) -> None:
    use = ("cuLibraryEnumerateKernels", byref(c_uint64()), 1, library_handle)
    _library(driver, "cuLibraryLoadData", _image(), *use)


@exercise("cuLibraryGetUnifiedFunction")
def unified_function(driver: Driver) -> None:
    """No simulated GPU has one, and its driver loads nothing to look."""
    library, function = c_void_p(), c_void_p()
    driver.check("cuLibraryLoadData", byref(library), _image(), *NO_OPTIONS)
    with driver.charged(0):
        driver.call("cuLibraryGetUnifiedFunction", byref(function), library, b"one")
        driver.check("cuCtxSynchronize")
    driver.check("cuLibraryUnload", library)
