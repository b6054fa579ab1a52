"""Programs under a slice whose first launches load code, as libraries do."""

#: ``quiet()`` is a moment at which the shim may ask again.
START = """
import os, sys, time
from support.shim.both_books import device_bytes, ledger_bytes
from support.shim.cuda_client import *
from support.shim.device_code import kernel, ptx
MIB, NONE = 1 << 20, ([], [], 0, [], [], 0)
def quiet():
    time.sleep(1.1)
    check(driver.cuCtxSynchronize())
def lazy(mib):
    image = ptx(f"// vgpu_sim_first_launch_mib={mib}\\n" + kernel("one"))
    return check(driver.cuLibraryLoadData(image, *NONE))
def launch(library):
    function = driver.CUfunction(int(check(driver.cuLibraryGetKernel(library, b"one"))))
    return code(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
def beyond(): return device_bytes() - ledger_bytes()
context = open_context()
"""
