"""Exercises of the launches of before cuLaunchKernel, and of the one on several devices."""

import ctypes
from ctypes import byref, c_uint, c_uint64, c_void_p

from support.exercise.driver import Driver, exercise
from support.exercise.share import KERNEL_NS, Share
from support.exercise.share import SLICE as SLICE

MEASURES = True
ON_SEVERAL_DEVICES = 96  # CUdevice_attribute


class Part(ctypes.Structure):
    """CUDA_LAUNCH_PARAMS."""

    _fields_ = (
        ("function", c_void_p),
        ("shape", c_uint * 7),
        ("stream", c_void_p),
        ("parameters", c_void_p),
    )


@exercise("cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync")
def old_launches(driver: Driver) -> None:
    share, length_ns = Share(driver), c_uint64(KERNEL_NS)
    function = share.spin.function
    driver.check("cuFuncSetBlockShape", function, 1, 1, 1)
    driver.check("cuParamSetv", function, 0, byref(length_ns), 8)
    driver.check("cuParamSetSize", function, 8)
    share.held("cuLaunch", function)
    share.held("cuLaunchGrid", function, 2, 2)
    share.held("cuLaunchGridAsync", function, 2, 2, share.spin.stream)
    share.close()


@exercise("cuLaunchCooperativeKernelMultiDevice")
def launch_on_several_devices(driver: Driver) -> None:
    driver.needs(
        driver.attribute(ON_SEVERAL_DEVICES) == 1,
        "this GPU takes part in no cooperative launch on several devices",
    )
    share = Share(driver)
    spin = share.spin
    part = Part(
        spin.function, (c_uint * 7)(*spin.shape), spin.stream, ctypes.addressof(spin.parameters)
    )
    share.held("cuLaunchCooperativeKernelMultiDevice", byref(part), 1, 0)
    share.close()
