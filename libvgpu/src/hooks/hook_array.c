/* Hooks of CUDA arrays, charged by their true size, which only the driver knows: an array of the
 * same form is made without memory (CUDA_ARRAY3D_DEFERRED_MAPPING), asked what it would need, and
 * ended again. Drivers before CUDA 11.6 have no such arrays, and some forms cannot be made so: then
 * the bound of array_size.h is charged, and not corrected.
 *
 * What the program makes without memory costs nothing; what it maps into such an array later is
 * charged where that memory is made. No lock: the map of allocations has its own. */
#include <stdbool.h>
#include <stddef.h>

#include "compute/capture.h"
#include "hooks/hook.h"
#include "memory/array_size.h"
#include "memory/charge.h"
#include "memory/sparse_array.h"
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
    CUresult result = devices_ask_stream_ordinal(NULL, &device, &is_known);
    if (result != CUDA_SUCCESS || !is_known)
        return result;
    return charge_reserve(charge, devices_find(device), VGPU_KIND_ARRAY,
                          bytes_of(form, levels, device));
}

#define MAKE(form, levels, call, handle) \
    do { \
        struct charge charge; \
        CUresult result = reserve(&charge, form, levels); \
        if (result != CUDA_SUCCESS) \
            return result; \
        result = charge_settle(&charge, (call), SPACE_ARRAY, handle); \
        if (result == CUDA_SUCCESS && is_mapped_later(form)) \
            sparse_array_made((uint64_t)(uintptr_t)*(handle)); \
        return result; \
    } while (0)

VGPU_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    NEED(cuArray3DCreate_v2);
    MAKE(form, 0, real.cuArray3DCreate_v2(array, form), array);
}

VGPU_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *form)
{
    NEED(cuArray3DCreate);
    CUDA_ARRAY3D_DESCRIPTOR wide = {0};
    if (form != NULL)
        wide = (CUDA_ARRAY3D_DESCRIPTOR){.Width = form->Width,
                                         .Height = form->Height,
                                         .Depth = form->Depth,
                                         .Format = form->Format,
                                         .NumChannels = form->NumChannels,
                                         .Flags = form->Flags};
    MAKE(form != NULL ? &wide : NULL, 0, real.cuArray3DCreate(array, form), array);
}

#define MAKE_FLAT(symbol, array, form) \
    do { \
        NEED(symbol); \
        CUDA_ARRAY3D_DESCRIPTOR wide = {0}; \
        if (form != NULL) \
            wide = (CUDA_ARRAY3D_DESCRIPTOR){.Width = form->Width, \
                                             .Height = form->Height, \
                                             .Format = form->Format, \
                                             .NumChannels = form->NumChannels}; \
        MAKE(form != NULL ? &wide : NULL, 0, real.symbol(array, form), array); \
    } while (0)

VGPU_EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *form)
{
    MAKE_FLAT(cuArrayCreate, array, form);
}

VGPU_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *form)
{
    MAKE_FLAT(cuArrayCreate_v2, array, form);
}

VGPU_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array,
                                            const CUDA_ARRAY3D_DESCRIPTOR *form,
                                            unsigned int levels)
{
    NEED(cuMipmappedArrayCreate);
    MAKE(form, levels > 0 ? levels : 1, real.cuMipmappedArrayCreate(array, form, levels), array);
}

VGPU_EXPORT CUresult cuArrayDestroy(CUarray array)
{
    NEED(cuArrayDestroy);
    CHARGE_FREE(SPACE_ARRAY, (uintptr_t)array, real.cuArrayDestroy(array));
}

VGPU_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    NEED(cuMipmappedArrayDestroy);
    CHARGE_FREE(SPACE_ARRAY, (uintptr_t)array, real.cuMipmappedArrayDestroy(array));
}
