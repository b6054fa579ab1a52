/*
 * CUDA arrays. A real one lies in memory in blocks of 64 bytes by 8 rows; here its rows are padded
 * to such blocks but follow each other, since nobody can look. So an array costs
 *   (width * element bytes, rounded up to 64) * (height, rounded up to 8) * depth or layers
 * of device memory, one of a single row no further rows, all of it rounded up as every allocation.
 * The memory is an allocation like any other, which ends with its context.
 *
 * The largest extents are those that the CUDA programming guide tells of devices since compute
 * capability 6.0; all profiles are newer.
 */
#include "array_mapping.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_WIDTH_BYTES 64u
#define BLOCK_ROWS 8u
#define CUBE_FACES 6u

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

uint32_t array_element_bytes(CUarray_format format, unsigned int channels)
{
    if (channels != 1 && channels != 2 && channels != 4)
        return 0;
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * channels;
    default:
        return 0;
    }
}

bool array_is_layered(const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    return form->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
}

static bool within(const CUDA_ARRAY3D_DESCRIPTOR *form, uint64_t width, uint64_t height,
                   uint64_t depth)
{
    return form->Width <= width && form->Height <= height && form->Depth <= depth;
}

static bool extent_is_good(const CUDA_ARRAY3D_DESCRIPTOR *form, bool mipmapped)
{
    bool layered = form->Flags & CUDA_ARRAY3D_LAYERED;
    if (form->Width == 0 || (layered && form->Depth == 0))
        return false;
    if (form->Flags & CUDA_ARRAY3D_CUBEMAP)
        return form->Height == form->Width && form->Depth && form->Depth % CUBE_FACES == 0 &&
               (layered || form->Depth == CUBE_FACES) && within(form, 32768, 32768, 2046);
    if (layered)
        return within(form, 32768, 32768, 2048); /* Height may be 0: layers of one row */
    if (form->Depth)
        return form->Height && within(form, 16384, 16384, 16384);
    if (form->Height)
        return mipmapped ? within(form, 32768, 32768, 0) : within(form, 131072, 65536, 0);
    if (mipmapped || form->Flags & CUDA_ARRAY3D_SURFACE_LDST)
        return within(form, 32768, 0, 0);
    return within(form, 131072, 0, 0);
}

CUresult array_check_form(const CUDA_ARRAY3D_DESCRIPTOR *form, bool mipmapped)
{
    const unsigned int elsewhere = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
    const unsigned int later = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
    const unsigned int known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                               CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                               CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT;
    bool flat = form->Height && !form->Depth;
    INVALID_IF(form->Flags & ~(known | later | elsewhere) || !extent_is_good(form, mipmapped) ||
               (form->Flags & CUDA_ARRAY3D_TEXTURE_GATHER && !flat) ||
               (form->Flags & later) == later ||
               (array_is_sparse(form) && (!form->Height || form->Flags & CUDA_ARRAY3D_CUBEMAP)));
    REFUSE_IF(form->Flags & elsewhere, CUDA_ERROR_NOT_SUPPORTED);
    if (array_element_bytes(form->Format, form->NumChannels))
        return CUDA_SUCCESS;
    /* block-compressed, planar and normalised formats: every one has a larger number than these */
    return form->Format > CU_AD_FORMAT_FLOAT ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

void array_lay_out(struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    uint64_t rows = form->Height > 1 ? round_up(form->Height, BLOCK_ROWS) : 1;
    array->form = *form;
    array->element_bytes = array_element_bytes(form->Format, form->NumChannels);
    array->pitch_bytes = round_up(form->Width * array->element_bytes, BLOCK_WIDTH_BYTES);
    array->slice_bytes = array->pitch_bytes * rows;
    array->bytes = array->slice_bytes * (form->Depth ? form->Depth : 1);
}

uint64_t array_cost(const struct CUarray_st *levels, uint32_t level_count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < level_count; i++)
        bytes += levels[i].bytes;
    return memory_round(bytes);
}

CUresult array_check(const struct CUarray_st *array)
{
    REFUSE_IF(!array || array->magic != MAGIC_ARRAY, CUDA_ERROR_INVALID_HANDLE);
    struct allocation found;
    if (array->mappings)
        return array_mappings_alive(array->mappings) ? CUDA_SUCCESS
                                                     : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return memory_find(array->address, 1, &found) && found.id == array->allocation_id
               ? CUDA_SUCCESS
               : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static bool lies_in(uint64_t start, uint64_t count, uint64_t end)
{
    return start <= end && count <= end - start;
}

CUresult array_region(const struct CUarray_st *array, const struct copy_operand *operand,
                      const struct copy_extent *extent, struct region *region)
{
    INVALID_IF(array_check(array) != CUDA_SUCCESS);
    const CUDA_ARRAY3D_DESCRIPTOR *form = &array->form;
    INVALID_IF(
        operand->x_bytes % array->element_bytes || extent->width_bytes % array->element_bytes ||
        !lies_in(operand->x_bytes, extent->width_bytes, form->Width * array->element_bytes) ||
        !lies_in(operand->y, extent->height, form->Height ? form->Height : 1) ||
        !lies_in(operand->z, extent->depth, form->Depth ? form->Depth : 1));
    REFUSE_IF(array->mappings, CUDA_ERROR_NOT_SUPPORTED); /* bytes that are not modelled */
    *region = (struct region){
        .address = array->address + operand->z * array->slice_bytes +
                   operand->y * array->pitch_bytes + operand->x_bytes,
        .width_bytes = extent->width_bytes,
        .rows = extent->height,
        .slices = extent->depth,
        .pitch_bytes = array->pitch_bytes,
        .slice_pitch_bytes = array->slice_bytes,
    };
    return CUDA_SUCCESS;
}

/* ---- entry points ---------------------------------------------------------------------------- */

static CUresult take_memory(struct CUarray_st *array)
{
    struct allocation found;
    CHECK(memory_allocate(array->context, array->bytes, ALLOCATION_ARRAY, &array->address));
    memory_find(array->address, 1, &found);
    array->allocation_id = found.id;
    return CUDA_SUCCESS;
}

static CUresult create(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result == CUDA_SUCCESS && !handle)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = array_check_form(form, false);
    if (result == CUDA_SUCCESS)
        result = capture_check_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    struct CUarray_st *array = calloc(1, sizeof *array);
    REFUSE_IF(!array, CUDA_ERROR_OUT_OF_MEMORY);
    array->context = context;
    array_lay_out(array, form);
    if (!array_maps_later(form))
        result = take_memory(array);
    else if (!(array->mappings = array_mappings_make(context)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(array);
        return result;
    }
    array->magic = MAGIC_ARRAY;
    *handle = array;
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    DRIVER_CHECK();
    return form ? create(array, form) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *form)
{
    DRIVER_CHECK();
    INVALID_IF(!form);
    CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = form->Width,
                                    .Height = form->Height,
                                    .Format = form->Format,
                                    .NumChannels = form->NumChannels};
    return create(array, &deep);
}

CUresult cuArrayDestroy(CUarray array)
{
    CURRENT_CONTEXT(context);
    /* a level goes with its mipmapped array */
    REFUSE_IF(!array || array->magic != MAGIC_ARRAY || array->level, CUDA_ERROR_INVALID_HANDLE);
    CHECK(capture_check_unsafe());
    CHECK(stream_calls_settle());
    CUresult result = array_check(array);
    if (array->mappings)
        array_mappings_end(array->mappings);
    else if (result == CUDA_SUCCESS)
        memory_forget(array->address);
    array->magic = 0;
    free(array);
    return result;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *form, CUarray array)
{
    DRIVER_CHECK();
    INVALID_IF(!form);
    CHECK(array_check(array));
    *form = array->form;
    return CUDA_SUCCESS;
}

/* Of an array with more than two extents it tells two: what a real driver says is not written. */
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *form, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR deep;
    INVALID_IF(!form);
    CHECK(cuArray3DGetDescriptor_v2(&deep, array));
    *form = (CUDA_ARRAY_DESCRIPTOR){.Width = deep.Width,
                                    .Height = deep.Height,
                                    .Format = deep.Format,
                                    .NumChannels = deep.NumChannels};
    return CUDA_SUCCESS;
}

/* There are no planar formats here, and for all others this is the documented answer. */
CUresult cuArrayGetPlane(CUarray *plane, CUarray array, unsigned int index)
{
    DRIVER_CHECK();
    (void)index;
    CUresult result = array_check(array);
    (void)plane;
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}
