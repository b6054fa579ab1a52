"""Structures of memory pools for exercises."""

import ctypes
from ctypes import c_byte, c_int, c_size_t, c_uint64, c_ushort, c_void_p

PINNED, ON_DEVICE, ON_HOST, FILE_DESCRIPTOR = 1, 1, 2, 1


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", c_int), ("id", c_int))


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("allocation_type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("most_bytes", c_size_t),
        ("usage", c_ushort),
        ("reserved", c_byte * 54),
    )


class AllocationNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = (
        ("pool", PoolProperties),
        ("access", c_void_p),
        ("access_count", c_size_t),
        ("bytes", c_size_t),
        ("address", c_uint64),
    )


def properties(handle_types: int = 0) -> PoolProperties:
    """Returns those of a pool on device 0."""
    return PoolProperties(PINNED, handle_types, Location(ON_DEVICE, 0))
