"""Structures of memory by handle and by descriptor, for exercises."""

import ctypes
import os
from ctypes import c_byte, c_int, c_size_t, c_uint, c_ulonglong, c_ushort, c_void_p

from support.exercise.pool import Location

OPAQUE_FD = 1


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("metadata", c_void_p),
        ("compression", c_byte),
        ("rdma", c_byte),
        ("usage", c_ushort),
        ("reserved", c_byte * 4),
    )


class TeamProperties(ctypes.Structure):
    """CUmulticastObjectProp."""

    _fields_ = (
        ("devices", c_uint),
        ("bytes", c_size_t),
        ("handle_types", c_ulonglong),
        ("flags", c_ulonglong),
    )


class Import(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC."""

    _fields_ = (
        ("type", c_int),
        ("gap", c_int),
        ("descriptor", c_int),
        ("rest_of_handle", c_int * 3),
        ("size", c_ulonglong),
        ("flags", c_uint),
        ("reserved", c_uint * 16),
    )


def foreign_memory(size: int) -> Import:
    """Returns what stands for memory of another interface: bytes of the host behind a descriptor.

    The simulated driver takes them for device memory. A real one takes what Vulkan exports.
    """
    descriptor = os.memfd_create("foreign")
    os.ftruncate(descriptor, size)
    return Import(type=OPAQUE_FD, descriptor=descriptor, size=size)
