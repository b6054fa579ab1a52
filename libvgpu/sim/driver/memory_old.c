/* Entry points of before CUDA 3.2, with 32-bit sizes and addresses. They exist because the real
 * library has them; an address that does not fit cannot be given out. */
#include "driver.h"

static unsigned int narrow(size_t value)
{
    return value > 0xffffffffu ? 0xffffffffu : (unsigned int)value;
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    size_t wide_free = 0, wide_total = 0;
    if (!free_bytes || !total_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
    if (result == CUDA_SUCCESS) {
        *free_bytes = narrow(wide_free);
        *total_bytes = narrow(wide_total);
    }
    return result;
}

static CUresult narrow_address(CUdeviceptr_v1 *address, CUdeviceptr wide)
{
    if (wide > 0xffffffffu) {
        cuMemFree_v2(wide);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (CUdeviceptr_v1)wide;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    CUdeviceptr wide = 0;
    CUresult result = address ? cuMemAlloc_v2(&wide, bytes) : CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? narrow_address(address, wide) : result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width_bytes,
                         unsigned int height, unsigned int element_bytes)
{
    CUdeviceptr wide = 0;
    size_t wide_pitch = 0;
    if (!address || !pitch)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuMemAllocPitch_v2(&wide, &wide_pitch, width_bytes, height, element_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    *pitch = narrow(wide_pitch);
    return narrow_address(address, wide);
}

CUresult cuMemFree(CUdeviceptr_v1 address)
{
    return cuMemFree_v2(address);
}

CUresult cuMemAllocHost(void **address, unsigned int bytes)
{
    return cuMemAllocHost_v2(address, bytes);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *mapped, void *address, unsigned int flags)
{
    CUdeviceptr wide = 0;
    if (!mapped)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuMemHostGetDevicePointer_v2(&wide, address, flags);
    if (result == CUDA_SUCCESS && wide > 0xffffffffu)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *mapped = (CUdeviceptr_v1)wide;
    return result;
}

/* An address of 32 bits is one of nothing that was given out. */
CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *bytes, CUdeviceptr_v1 address)
{
    CUdeviceptr wide_base = 0;
    size_t wide_bytes = 0;
    CUresult result = cuMemGetAddressRange_v2(&wide_base, &wide_bytes, address);
    if (result == CUDA_SUCCESS && base)
        *base = (CUdeviceptr_v1)wide_base;
    if (result == CUDA_SUCCESS && bytes)
        *bytes = narrow(wide_bytes);
    return result;
}
