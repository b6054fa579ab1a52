/* Hooks of plain device memory: reserve in the ledger, call the driver, keep the charge or give it
 * back. */
#include "hooks/hook.h"
#include "memory/charge.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

VGPU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    if (!cuda_has(&real.cuMemAlloc_v2))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge charge;
    CUresult result = charge_reserve_current(&charge, VGPU_KIND_PLAIN, charge_rounded(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    return charge_settle(&charge, real.cuMemAlloc_v2(address, bytes), SPACE_ADDRESS, address);
}

VGPU_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    if (!cuda_has(&real.cuMemAllocManaged))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge charge;
    CUresult result = charge_reserve_current(&charge, VGPU_KIND_MANAGED, charge_rounded(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    return charge_settle(&charge, real.cuMemAllocManaged(address, bytes, flags), SPACE_ADDRESS,
                         address);
}

/* ---- rows with a pitch ---- */

/* Only the driver knows the pitch. All devices seen so far round rows up as they do allocations;
 * where another one does not, or that much does not fit, a single row tells. */

static uint64_t rows_bytes(uint64_t pitch_bytes, uint64_t height)
{
    uint64_t bytes;
    return __builtin_mul_overflow(pitch_bytes, height, &bytes) ? UINT64_MAX : charge_rounded(bytes);
}

/* The pitch of such a row, or 0; takes the row for an instant, which *charge has room for. */
static size_t ask_pitch(size_t width_bytes, unsigned int element_bytes)
{
    CUdeviceptr row;
    size_t pitch = 0;
    if (real.cuMemAllocPitch_v2(&row, &pitch, width_bytes, 1, element_bytes) != CUDA_SUCCESS)
        return 0;
    real.cuMemFree_v2(row);
    return pitch;
}

static CUresult reserve_rows(struct charge *charge, size_t width_bytes, size_t height,
                             unsigned int element_bytes)
{
    int device = DEVICE_UNKNOWN;
    CUresult result = CUDA_SUCCESS;
    uint64_t row_bytes = charge_rounded(width_bytes);
    *charge = (struct charge){.device = CHARGE_NONE};
    if (region_open() != REGION_NONE)
        result = devices_ask_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (device == DEVICE_UNKNOWN || width_bytes == 0 || height == 0 ||
        charge_try(charge, device, VGPU_KIND_PLAIN, rows_bytes(row_bytes, height)))
        return CUDA_SUCCESS;
    result = charge_reserve(charge, device, VGPU_KIND_PLAIN, row_bytes);
    size_t pitch = result == CUDA_SUCCESS ? ask_pitch(width_bytes, element_bytes) : 0;
    if (pitch == 0)
        return result; /* with the real call the driver says why */
    result = charge_resize(charge, rows_bytes(pitch, height));
    if (result != CUDA_SUCCESS)
        charge_cancel(charge);
    return result;
}

VGPU_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes,
                                        size_t height, unsigned int element_bytes)
{
    if (!cuda_has(&real.cuMemAllocPitch_v2))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge charge;
    CUresult result = reserve_rows(&charge, width_bytes, height, element_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuMemAllocPitch_v2(address, pitch, width_bytes, height, element_bytes);
    if (result == CUDA_SUCCESS &&
        charge_resize(&charge, rows_bytes(*pitch, height)) != CUDA_SUCCESS) {
        real.cuMemFree_v2(*address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_settle(&charge, result, SPACE_ADDRESS, address);
}

VGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    if (!cuda_has(&real.cuMemFree_v2))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge_free free = charge_free_begin(SPACE_ADDRESS, address);
    return charge_free_end(&free, real.cuMemFree_v2(address));
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
    if (!cuda_has(&real.cuMemAlloc))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge charge;
    CUresult result = charge_reserve_current(&charge, VGPU_KIND_PLAIN, charge_rounded(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    return settle_narrow(&charge, real.cuMemAlloc(address, bytes), address);
}

VGPU_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch,
                                     unsigned int width_bytes, unsigned int height,
                                     unsigned int element_bytes)
{
    if (!cuda_has(&real.cuMemAllocPitch))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge charge;
    CUresult result = reserve_rows(&charge, width_bytes, height, element_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuMemAllocPitch(address, pitch, width_bytes, height, element_bytes);
    if (result == CUDA_SUCCESS &&
        charge_resize(&charge, rows_bytes(*pitch, height)) != CUDA_SUCCESS) {
        real.cuMemFree(*address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return settle_narrow(&charge, result, address);
}

VGPU_EXPORT CUresult cuMemFree(CUdeviceptr_v1 address)
{
    if (!cuda_has(&real.cuMemFree))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge_free free = charge_free_begin(SPACE_ADDRESS, address);
    return charge_free_end(&free, real.cuMemFree(address));
}
