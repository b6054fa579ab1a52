"""NVML for exercises: started, with the handle of a GPU; its own calls are not noted."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_uint, c_uint64, c_void_p

from support.exercise.driver import MIB, Driver


class NvmlProcess(ctypes.Structure):
    """nvmlProcessInfo_v1_t."""

    _fields_ = (("pid", c_uint), ("used", c_uint64))


class ProcessV2(ctypes.Structure):
    """nvmlProcessInfo_v2_t."""

    _fields_ = (*NvmlProcess._fields_, ("gpu_instance", c_uint), ("compute_instance", c_uint))


class ProcessDetail(ctypes.Structure):
    """nvmlProcessDetail_v1_t."""

    _fields_ = (*ProcessV2._fields_, ("protected", c_uint64))


class ProcessDetails(ctypes.Structure):
    """nvmlProcessDetailList_v1_t."""

    _fields_ = (
        ("version", c_uint),
        ("mode", c_uint),
        ("count", c_uint),
        ("entries", ctypes.POINTER(ProcessDetail)),
    )


class Sample(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = (
        ("pid", c_uint),
        ("at_us", c_uint64),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )


class SampleV2(ctypes.Structure):
    """nvmlProcessUtilizationInfo_v1_t."""

    _fields_ = (("at_us", c_uint64), ("pid", c_uint), ("sm", c_uint), ("others", c_uint * 5))


class NvmlSamples(ctypes.Structure):
    """nvmlProcessesUtilizationInfo_v1_t."""

    _fields_ = (
        ("version", c_uint),
        ("count", c_uint),
        ("since_us", c_uint64),
        ("entries", ctypes.POINTER(SampleV2)),
    )


class DeviceSample(ctypes.Structure):
    """nvmlSample_t."""

    _fields_ = (("at_us", c_uint64), ("value", c_uint64))


class Rates(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Domain(ctypes.Structure):
    """An entry of nvmlGpuDynamicPstatesInfo_t."""

    _fields_ = (("present", c_uint), ("percent", c_uint), ("more", c_uint), ("less", c_uint))


class PerformanceStates(ctypes.Structure):
    """nvmlGpuDynamicPstatesInfo_t."""

    _fields_ = (("flags", c_uint), ("domains", Domain * 8))


def versioned(structure: type[ctypes.Structure]) -> int:
    """Returns what the field ``version`` of a first version must hold."""
    return ctypes.sizeof(structure) | 1 << 24


def needs_another_gpu(driver: Driver) -> None:
    """Ends an exercise of what a slice sees of a GPU that it is not of, where there is none."""
    driver.needs(driver.sizes.gpus > 1, "this machine has no second GPU")


@contextmanager
def handle_of(driver: Driver, index: int) -> Iterator[c_void_p]:
    """Starts NVML for the time inside and gives a GPU's handle."""
    handle = c_void_p()
    noted = set(driver.called)
    driver.check("nvmlInit_v2")
    driver.check("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
    driver.called = noted
    try:
        yield handle
    finally:
        noted = set(driver.called)
        driver.check("nvmlShutdown")
        driver.called = noted


@contextmanager
def some_memory(driver: Driver) -> Iterator[None]:
    """Holds a MiB of device 0 inside."""
    address = c_uint64()
    noted = set(driver.called)
    driver.check("cuMemAlloc_v2", byref(address), MIB)
    driver.called = noted
    try:
        yield
    finally:
        noted = set(driver.called)
        driver.check("cuMemFree_v2", address)
        driver.called = noted
