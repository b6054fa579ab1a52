/* Hooks of plain device memory: reserve in the ledger, call the driver, keep the charge or give it
 * back. */
#include "charge.h"
#include "hook.h"
#include "vgpu/contract.h"

VGPU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    NEED(cuMemAlloc_v2);
    struct charge charge;
    CUresult result = charge_reserve_current(&charge, VGPU_KIND_PLAIN, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    return charge_settle(&charge, real.cuMemAlloc_v2(address, bytes), SPACE_ADDRESS, address);
}

VGPU_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    NEED(cuMemAllocManaged);
    struct charge charge;
    CUresult result = charge_reserve_current(&charge, VGPU_KIND_MANAGED, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    return charge_settle(&charge, real.cuMemAllocManaged(address, bytes, flags), SPACE_ADDRESS,
                         address);
}

VGPU_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                                        size_t height, unsigned int element_bytes)
{
    NEED(cuMemAllocPitch_v2);
    struct charge charge;
    uint64_t least;
    if (__builtin_mul_overflow(width_bytes, height, &least))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = charge_reserve_current(&charge, VGPU_KIND_PLAIN, least);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuMemAllocPitch_v2(address, pitch, width_bytes, height, element_bytes);
    /* Only the driver knows the pitch; what it adds is reserved now, or the memory goes back. */
    if (result == CUDA_SUCCESS && charge_resize(&charge, *pitch * height) != CUDA_SUCCESS) {
        real.cuMemFree_v2(*address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_settle(&charge, result, SPACE_ADDRESS, address);
}

VGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    NEED(cuMemFree_v2);
    CHARGE_FREE(SPACE_ADDRESS, address, real.cuMemFree_v2(address));
}
