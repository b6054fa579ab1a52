/* A libcuda.so.1 in front of the simulated one, which it needs by its path and to which it leaves
 * all else: its current context is one of before CUDA 3.2, so the calls of that time succeed. With
 * NAME_ALONE there is nothing in it, and it stands in for the simulated one when the other is
 * linked. */
#include <stdint.h>

#include "vgpu/cuda_api.h"

#ifndef NAME_ALONE
#define FIRST_ADDRESS 0x10000000u
#define STEP 0x2000000u /* more than any piece of the test */
#define PITCH_BYTES 512u

static unsigned int pieces;

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    *free_bytes = *total_bytes = UINT32_MAX;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    *address = FIRST_ADDRESS + STEP * pieces++;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width_bytes,
                         unsigned int height, unsigned int element_bytes)
{
    *pitch = (width_bytes + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    return cuMemAlloc(address, *pitch * height);
}

CUresult cuMemFree(CUdeviceptr_v1 address)
{
    return CUDA_SUCCESS;
}
#endif
