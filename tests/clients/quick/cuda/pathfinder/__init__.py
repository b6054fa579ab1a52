"""Finds the driver for ``cuda.bindings`` by its name alone, where tests start CUDA programs.

The real package can search wheels, Conda and the toolkit for every library of NVIDIA's, and half of
what a program of a test takes to start goes into loading it. What the bindings then do with the
driver is the same. ``tests/integration/libvgpu/sim/test_clients.py`` has the real one.
"""

import ctypes
import os


class LoadedLibrary:
    """An open library; the bindings take its handle of ``dlopen`` by this name."""

    def __init__(self, handle: int) -> None:
        self._handle_uint = handle


def load_nvidia_dynamic_lib(libname: str) -> LoadedLibrary:
    """Opens the driver.

    Raises:
        OSError: it is not there.
        ValueError: another library is asked for, which no program here needs.
    """
    if libname != "cuda":
        raise ValueError(f"tests find cuda alone, not {libname}")
    return LoadedLibrary(ctypes.CDLL("libcuda.so.1", os.RTLD_NOW | os.RTLD_GLOBAL)._handle)
