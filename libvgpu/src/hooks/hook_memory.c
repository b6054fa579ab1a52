/* Hooks of plain device memory: reserve in the ledger, call the driver, keep the charge or give it
 * back. */
#include "driver/capture.h"
#include "hooks/hook.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/charge.h"
#include "memory/ledger/piece.h"
#include "vgpu/contract.h"

#define ALLOCATE(symbol, parameters, kind, ...) \
    VGPU_EXPORT CUresult symbol parameters \
    { \
        NEEDS(symbol); \
        ALONE_WITHOUT(address, symbol(address, __VA_ARGS__)); \
        struct piece piece; \
        reconcile_quiet(); \
        CUresult result = piece_reserve_current(&piece, kind, bytes); \
        if (result != CUDA_SUCCESS) \
            return result; \
        result = real.symbol(address, __VA_ARGS__); \
        return piece_settle(&piece, result, result == CUDA_SUCCESS ? *address : 0); \
    }

ALLOCATE(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), VGPU_KIND_PLAIN, bytes)
ALLOCATE(cuMemAlloc, (CUdeviceptr_v1 * address, unsigned int bytes), VGPU_KIND_PLAIN,
         bytes) /* CUDA 3 and before: addresses of 32 bits */
ALLOCATE(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned int flags),
         VGPU_KIND_MANAGED, bytes, flags)

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
    struct capture_pause pause = capture_pause();
    CUresult result = real.cuMemAllocPitch_v2(&row, &pitch, width_bytes, 1, element_bytes);
    capture_resume(pause);
    if (result != CUDA_SUCCESS)
        return 0;
    piece_give_back(row);
    return pitch;
}

static CUresult reserve_rows(struct piece *piece, size_t width_bytes, size_t height,
                             unsigned int element_bytes)
{
    uint64_t row_bytes = charge_rounded(width_bytes);
    uint64_t guess_bytes = width_bytes == 0 || height == 0 ? 0 : rows_bytes(row_bytes, height);
    bool fits;
    CUresult result = piece_try_current(piece, VGPU_KIND_PLAIN, guess_bytes, &fits);
    if (result != CUDA_SUCCESS || fits)
        return result;
    result = piece_reserve_current(piece, VGPU_KIND_PLAIN, row_bytes);
    size_t pitch = result == CUDA_SUCCESS ? ask_pitch(width_bytes, element_bytes) : 0;
    if (pitch == 0)
        return result; /* with the real call the driver says why */
    result = piece_resize(piece, rows_bytes(pitch, height));
    if (result != CUDA_SUCCESS)
        charge_cancel(&piece->charge);
    return result;
}

/* After the driver's answer: rows may have come out wider. */
static CUresult settle_rows(struct piece *piece, CUresult result, CUdeviceptr address, size_t pitch,
                            size_t height)
{
    if (result == CUDA_SUCCESS && piece_resize(piece, rows_bytes(pitch, height)) != CUDA_SUCCESS) {
        piece_give_back(address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return piece_settle(piece, result, address);
}

#define ALLOCATE_ROWS(symbol, address_type, size) \
    VGPU_EXPORT CUresult symbol(address_type *address, size *pitch, size width_bytes, size height, \
                                unsigned int element_bytes) \
    { \
        NEEDS(symbol); \
        ALONE_WITHOUT(address, symbol(address, pitch, width_bytes, height, element_bytes)); \
        ALONE_WITHOUT(pitch, symbol(address, pitch, width_bytes, height, element_bytes)); \
        struct piece piece; \
        reconcile_quiet(); \
        CUresult result = reserve_rows(&piece, width_bytes, height, element_bytes); \
        if (result != CUDA_SUCCESS) \
            return result; \
        result = real.symbol(address, pitch, width_bytes, height, element_bytes); \
        bool is_made = result == CUDA_SUCCESS; \
        return settle_rows(&piece, result, is_made ? *address : 0, is_made ? *pitch : 0, height); \
    }

ALLOCATE_ROWS(cuMemAllocPitch_v2, CUdeviceptr, size_t)
ALLOCATE_ROWS(cuMemAllocPitch, CUdeviceptr_v1, unsigned int)

/* ---- ends ---- */

#define FREE(symbol, type) \
    VGPU_EXPORT CUresult symbol(type address) \
    { \
        NEEDS(symbol); \
        struct charge_free free = charge_free_begin(SPACE_ADDRESS, address); \
        CUresult result = charge_free_end(&free, real.symbol(address)); \
        reconcile_quiet(); \
        return result; \
    }

FREE(cuMemFree_v2, CUdeviceptr)
FREE(cuMemFree, CUdeviceptr_v1)
