"""What a program may ask before cuInit, and before libcuda is there at all."""

from support.shim.slices import Slice

GIB = 1 << 30
OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3  # the driver's own answer

EARLY_CONTEXT = """
from support.shim.cuda_client import *
early = int(driver.cuDevicePrimaryCtxRetain(0)[0])
open_context()
print(early, *check(driver.cuMemGetInfo()), int(driver.cuMemAlloc(1 << 20)[0]),
      int(driver.cuMemAlloc(1 << 30)[0]))
"""
LOOK_UP = """
import ctypes
process = ctypes.CDLL(None)
assert "libcuda" not in open("/proc/self/maps").read()
print("libvgpu.so" in open("/proc/self/maps").read())
try:
    process.cuInit
except AttributeError as error:  # its text is dlerror's
    print(error)
"""


def test_a_context_asked_for_too_early_does_not_spoil_the_device(part: Slice) -> None:
    early, free, total, small, large = map(int, part.run(EARLY_CONTEXT))

    assert early == NOT_INITIALIZED
    assert (free, total) == (GIB, GIB)
    assert (small, large) == (0, OUT_OF_MEMORY)


def test_a_process_without_libcuda_has_no_driver_functions(part: Slice) -> None:
    is_loaded, *words = part.run(LOOK_UP)
    without = part.run(LOOK_UP, shim=False)[1:]

    assert is_loaded == "True"
    assert words[-3:] == ["undefined", "symbol:", "cuInit"]
    assert words[-3:] == without[-3:]
