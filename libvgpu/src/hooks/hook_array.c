/* Hooks of CUDA arrays, charged by their true size, which only the driver knows: an array of the
 * same form is made without memory (CUDA_ARRAY3D_DEFERRED_MAPPING), asked what it would need, and
 * ended again. Drivers before CUDA 11.6 have no such arrays, and some forms cannot be made so: then
 * the bound of array_size.h is charged, and not corrected.
 *
 * What the program makes without memory costs nothing; what it maps into such an array later is
 * charged where that memory is made. No lock: the map of allocations has its own. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "driver/capture.h"
#include "hooks/hook.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/array_size.h"
#include "memory/ledger/block.h"
#include "memory/ledger/charge.h"
#include "memory/vmm/sparse_array.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"
#include "vgpu/cuda_array.h"

static bool ask_for_array(const CUDA_ARRAY3D_DESCRIPTOR *form, CUdevice device,
                          CUDA_ARRAY_MEMORY_REQUIREMENTS *needed)
{
    CUarray probe;
    if (real.cuArrayGetMemoryRequirements == NULL ||
        real.cuArray3DCreate_v2(&probe, form) != CUDA_SUCCESS)
        return false;
    CUresult result = real.cuArrayGetMemoryRequirements(needed, probe, device);
    real.cuArrayDestroy(probe);
    return result == CUDA_SUCCESS;
}

static bool ask_for_mipmap(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int levels,
                           CUdevice device, CUDA_ARRAY_MEMORY_REQUIREMENTS *needed)
{
    CUmipmappedArray probe;
    if (real.cuMipmappedArrayGetMemoryRequirements == NULL ||
        real.cuMipmappedArrayCreate(&probe, form, levels) != CUDA_SUCCESS)
        return false;
    CUresult result = real.cuMipmappedArrayGetMemoryRequirements(needed, probe, device);
    real.cuMipmappedArrayDestroy(probe);
    return result == CUDA_SUCCESS;
}

/* `levels` 0: not a mipmapped array. */
static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int levels, CUdevice device)
{
    CUDA_ARRAY3D_DESCRIPTOR probe = *form;
    CUDA_ARRAY_MEMORY_REQUIREMENTS needed = {0};
    probe.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    struct capture_pause pause = capture_pause();
    bool is_told = levels == 0 ? ask_for_array(&probe, device, &needed)
                               : ask_for_mipmap(&probe, levels, device, &needed);
    capture_resume(pause);
    return is_told ? needed.size : array_size_bound(form, levels);
}

/* What is mapped into such an array ends with it (sparse_array.h). */
static bool is_mapped_later(const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    return form != NULL && (form->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING));
}

/* Reserves what such an array takes. Of what cannot be, the driver says why. */
static CUresult reserve(struct charge *charge, const CUDA_ARRAY3D_DESCRIPTOR *form,
                        unsigned int levels)
{
    CUdevice device;
    bool is_known;
    *charge = (struct charge){.device = CHARGE_NONE};
    if (form == NULL || form->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) ||
        region_open() == REGION_NONE)
        return CUDA_SUCCESS;
    reconcile_quiet();
    CUresult result = devices_ask_stream_ordinal(NULL, &device, &is_known);
    if (result != CUDA_SUCCESS || !is_known)
        return result;
    int index = devices_find(device);
    uint64_t bytes = bytes_of(form, levels, device);
    if (index >= 0 && region_claim())
        bytes = block_rounded((uint32_t)index, bytes);
    return charge_reserve(charge, index, VGPU_KIND_ARRAY, bytes);
}

/* After the driver's call: keeps the charge with the new array or mipmapped array, or gives it back. */
static CUresult made(const struct charge *charge, CUresult result,
                     const CUDA_ARRAY3D_DESCRIPTOR *form, const void *handle)
{
    uint64_t array;
    result = charge_settle(charge, result, SPACE_ARRAY, handle);
    if (result == CUDA_SUCCESS && is_mapped_later(form)) {
        memcpy(&array, handle, sizeof array);
        sparse_array_made(array);
    }
    return result;
}

/* `known` is the form in full, NULL where the program gave none. */
#define CREATE(symbol, parameters, handle, known, levels, ...) \
    VGPU_EXPORT CUresult symbol parameters \
    { \
        NEEDS(symbol); \
        ALONE_WITHOUT(handle, symbol(handle, __VA_ARGS__)); \
        struct charge charge; \
        const CUDA_ARRAY3D_DESCRIPTOR *whole = known; \
        CUresult result = reserve(&charge, whole, levels); \
        return result != CUDA_SUCCESS \
                   ? result \
                   : made(&charge, real.symbol(handle, __VA_ARGS__), whole, handle); \
    }

#define FLAT(form) \
    ((form) == NULL ? NULL \
                    : &(CUDA_ARRAY3D_DESCRIPTOR){.Width = (form)->Width, \
                                                 .Height = (form)->Height, \
                                                 .Format = (form)->Format, \
                                                 .NumChannels = (form)->NumChannels})
#define DEEP(form) \
    ((form) == NULL ? NULL \
                    : &(CUDA_ARRAY3D_DESCRIPTOR){.Width = (form)->Width, \
                                                 .Height = (form)->Height, \
                                                 .Depth = (form)->Depth, \
                                                 .Format = (form)->Format, \
                                                 .NumChannels = (form)->NumChannels, \
                                                 .Flags = (form)->Flags})

CREATE(cuArrayCreate, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR_v1 *form), array, FLAT(form), 0,
       form)
CREATE(cuArrayCreate_v2, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *form), array, FLAT(form), 0,
       form)
CREATE(cuArray3DCreate, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *form), array,
       DEEP(form), 0, form)
CREATE(cuArray3DCreate_v2, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *form), array, form, 0,
       form)
CREATE(cuMipmappedArrayCreate,
       (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int levels), array,
       form, levels > 0 ? levels : 1, form, levels)

#define DESTROY(symbol, type) \
    VGPU_EXPORT CUresult symbol(type array) \
    { \
        NEEDS(symbol); \
        struct charge_free free = charge_free_begin(SPACE_ARRAY, (uintptr_t)array); \
        return charge_free_end(&free, real.symbol(array)); \
    }

DESTROY(cuArrayDestroy, CUarray)
DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray)
