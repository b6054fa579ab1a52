/* Hooks of device memory: reserve in the ledger, call the driver, keep the charge or give it back.
 * The twins of the per-thread default stream share their original's body. */
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

/* ---- CUDA 3 and before: addresses of 32 bits ---- */

static CUresult settle_narrow(const struct charge *charge, CUresult result,
                              const CUdeviceptr_v1 *address)
{
    CUdeviceptr wide = result == CUDA_SUCCESS ? *address : 0;
    return charge_settle(charge, result, SPACE_ADDRESS, &wide);
}

VGPU_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    NEED(cuMemAlloc);
    struct charge charge;
    CUresult result = charge_reserve_current(&charge, VGPU_KIND_PLAIN, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    return settle_narrow(&charge, real.cuMemAlloc(address, bytes), address);
}

VGPU_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch,
                                     unsigned int width_bytes, unsigned int height,
                                     unsigned int element_bytes)
{
    NEED(cuMemAllocPitch);
    struct charge charge;
    CUresult result =
        charge_reserve_current(&charge, VGPU_KIND_PLAIN, (uint64_t)width_bytes * height);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuMemAllocPitch(address, pitch, width_bytes, height, element_bytes);
    if (result == CUDA_SUCCESS &&
        charge_resize(&charge, (uint64_t)*pitch * height) != CUDA_SUCCESS) {
        real.cuMemFree(*address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return settle_narrow(&charge, result, address);
}

VGPU_EXPORT CUresult cuMemFree(CUdeviceptr_v1 address)
{
    NEED(cuMemFree);
    CHARGE_FREE(SPACE_ADDRESS, address, real.cuMemFree(address));
}

/* ---- memory in the order of a stream ---- */

static CUresult settle_async(const struct charge *charge, CUresult result,
                             const CUdeviceptr *address)
{
    if (result != CUDA_SUCCESS)
        charge_cancel(charge);
    else
        charge_keep_lasting(charge, SPACE_ADDRESS, *address, NULL);
    return result;
}

#define ALLOC_ASYNC(symbol) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr *address, size_t bytes, CUstream stream) \
    { \
        NEED(symbol); \
        struct charge charge; \
        CUresult result = charge_reserve_stream(&charge, stream, VGPU_KIND_ASYNC, bytes); \
        if (result != CUDA_SUCCESS) \
            return result; \
        return settle_async(&charge, real.symbol(address, bytes, stream), address); \
    }

ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)

#define ALLOC_FROM_POOL(symbol) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, \
                                CUstream stream) \
    { \
        NEED(symbol); \
        struct charge charge; \
        CUresult result = charge_reserve_stream(&charge, stream, VGPU_KIND_ASYNC, bytes); \
        if (result != CUDA_SUCCESS) \
            return result; \
        result = real.symbol(address, bytes, pool, stream); \
        /* the pool may be another device's than the stream */ \
        if (result == CUDA_SUCCESS && charge_move(&charge, *address) != CUDA_SUCCESS) { \
            real.cuMemFreeAsync(*address, stream); \
            result = CUDA_ERROR_OUT_OF_MEMORY; \
        } \
        return settle_async(&charge, result, address); \
    }

ALLOC_FROM_POOL(cuMemAllocFromPoolAsync)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

VGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    NEED(cuMemFree_v2);
    CHARGE_FREE(SPACE_ADDRESS, address, real.cuMemFree_v2(address));
}

VGPU_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    NEED(cuMemFreeAsync);
    CHARGE_FREE(SPACE_ADDRESS, address, real.cuMemFreeAsync(address, stream));
}

VGPU_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    NEED(cuMemFreeAsync_ptsz);
    CHARGE_FREE(SPACE_ADDRESS, address, real.cuMemFreeAsync_ptsz(address, stream));
}
