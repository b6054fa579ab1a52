"""What programs that take memory by handle under a slice are written with; sizes are in bytes."""

VMM = """
import sys
from support.shim.cuda_client import *
MIB, GRANULE = 1 << 20, 2 << 20
def properties(device=0, host=False):
    kinds = driver.CUmemLocationType
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = (kinds.CU_MEM_LOCATION_TYPE_HOST if host
                            else kinds.CU_MEM_LOCATION_TYPE_DEVICE)
    wanted.location.id = device
    return wanted
def ask(size, **where): return int(driver.cuMemCreate(size, properties(**where), 0)[0])
def create(size, **where): return check(driver.cuMemCreate(size, properties(**where), 0))
def reserve(size): return int(check(driver.cuMemAddressReserve(size, 0, 0, 0)))
def map_at(address, handle, size): return int(driver.cuMemMap(address, size, 0, handle, 0)[0])
def unmap(address, size): return int(driver.cuMemUnmap(address, size)[0])
def release(handle): return int(driver.cuMemRelease(handle)[0])
def used():
    free, total = check(driver.cuMemGetInfo())
    return (total - free) // MIB
open_context()
"""

#: Objects of one device; behind `VMM`.
MULTICAST = """
def team(granules=4):
    wanted = driver.CUmulticastObjectProp()
    wanted.numDevices, wanted.size = 1, granules * GRANULE
    made = check(driver.cuMulticastCreate(wanted))
    check(driver.cuMulticastAddDevice(made, 0))
    return made
def bind(team, at, memory):
    return int(driver.cuMulticastBindMem(team, at, memory, 0, GRANULE, 0)[0])
def bind_address(team, at, address):
    return int(driver.cuMulticastBindAddr(team, at, address, GRANULE, 0)[0])
def unbind(team, at): return int(driver.cuMulticastUnbind(team, 0, at, GRANULE)[0])
"""

#: Arrays of 32-bit elements with tiles of 128 by 128; behind `VMM`.
SPARSE = """
import ctypes, threading
LEVEL = driver.CUarraySparseSubresourceType.CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL
def sparse(width=512, height=512):
    form = driver.CUDA_ARRAY3D_DESCRIPTOR()
    form.Width, form.Height, form.NumChannels = width, height, 1
    form.Format, form.Flags = driver.CUarray_format.CU_AD_FORMAT_FLOAT, driver.CUDA_ARRAY3D_SPARSE
    return check(driver.cuArray3DCreate(form))
def pool():
    wanted = properties()
    wanted.allocFlags.usage = 1
    return check(driver.cuMemCreate(GRANULE, wanted, 0))
def tile(array, x, memory=None):
    made = driver.CUarrayMapInfo()
    made.resourceType = driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    made.resource.array = array
    made.subresourceType = LEVEL
    part = made.subresource.sparseLevel
    part.offsetX, part.extentWidth, part.extentHeight, part.extentDepth = x * 128, 128, 128, 1
    made.memHandleType = driver.CUmemHandleType.CU_MEM_HANDLE_TYPE_GENERIC
    made.memOperationType = driver.CUmemOperationType.CU_MEM_OPERATION_TYPE_UNMAP
    if memory:
        made.memOperationType = driver.CUmemOperationType.CU_MEM_OPERATION_TYPE_MAP
        made.memHandle.memHandle = memory
    made.deviceBitMask = 1
    return made
def apply(*tiles, stream=0):
    return int(driver.cuMemMapArrayAsync(list(tiles), len(tiles), stream)[0])
"""
