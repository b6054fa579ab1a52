"""Exercises of memory by descriptor: exported, imported, and that of other interfaces."""

import ctypes
import os
from ctypes import byref, c_int, c_uint, c_uint64, c_ulonglong, c_void_p

from exercises.vmm import Form
from support.exercise.driver import MIB, Driver, exercise
from support.exercise.handles import Properties, foreign_memory
from support.exercise.pool import FILE_DESCRIPTOR, ON_DEVICE, PINNED, Location

UNSIGNED_INT8 = 1


class Buffer(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = (
        ("offset", c_ulonglong),
        ("size", c_ulonglong),
        ("flags", c_uint),
        ("reserved", c_uint * 16),
    )


class Mipmap(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC."""

    _fields_ = (
        ("offset", c_ulonglong),
        ("form", Form),
        ("levels", c_uint),
        ("reserved", c_uint * 16),
    )


@exercise("cuMemExportToShareableHandle", "cuMemImportFromShareableHandle")
def handles_by_descriptor(driver: Driver) -> None:
    handle, again, descriptor = c_uint64(), c_uint64(), c_int()
    wanted = Properties(type=PINNED, handle_types=FILE_DESCRIPTOR, location=Location(ON_DEVICE, 0))
    granule = driver.sizes.granule_bytes
    with driver.charged(granule):
        driver.check("cuMemCreate", byref(handle), granule, byref(wanted), 0)
    with driver.charged(0):
        driver.check("cuMemExportToShareableHandle", byref(descriptor), handle, FILE_DESCRIPTOR, 0)
        driver.check(
            "cuMemImportFromShareableHandle",
            byref(again),
            c_void_p(descriptor.value),
            FILE_DESCRIPTOR,
        )
        driver.check("cuMemRelease", handle)
        driver.check("cuMemRelease", again)  # the descriptor could still be imported
    with driver.charged(-granule):
        os.close(descriptor.value)
        address = c_uint64()
        with driver.full():
            driver.check("cuMemAlloc_v2", byref(address), granule)  # looked for before a refusal
            driver.check("cuMemFree_v2", address)


@exercise(
    "cuImportExternalMemory",
    "cuDestroyExternalMemory",
    "cuExternalMemoryGetMappedBuffer",
    "cuExternalMemoryGetMappedMipmappedArray",
)
def other_interfaces(driver: Driver) -> None:
    memory, address, mipmap = c_void_p(), c_uint64(), c_void_p()
    form = Form(width=64, height=64, format=UNSIGNED_INT8, channels=1)
    driver.needs_call(
        "cuImportExternalMemory", "what can be imported comes from Vulkan, which no exercise has"
    )
    with driver.charged(MIB, "other"):
        driver.check("cuImportExternalMemory", byref(memory), byref(foreign_memory(MIB)))
    with driver.charged(0, "other"):
        driver.check(
            "cuExternalMemoryGetMappedBuffer", byref(address), memory, byref(Buffer(size=MIB))
        )
        driver.check(
            "cuExternalMemoryGetMappedMipmappedArray",
            byref(mipmap),
            memory,
            byref(Mipmap(form=form, levels=1)),
        )
        driver.check("cuDestroyExternalMemory", memory)
        driver.check("cuMemFree_v2", address)
    with driver.charged(-MIB, "other"):
        driver.check("cuMipmappedArrayDestroy", mipmap)
    with driver.full():
        driver.refuse("cuImportExternalMemory", byref(memory), byref(foreign_memory(MIB)))
