/*
 * Mipmapped arrays: all levels in one allocation, one after the other, each laid out as an array of
 * its own extents. Level n is the first one's width, height and depth divided by 2^n, at least 1;
 * the layers of layered arrays and cubemaps stay as many. The number of levels is clamped as
 * documented, not counting layers as an extent that could be halved.
 */
#include <stdlib.h>

#include "array_mapping.h"
#include "external.h"

static uint64_t halved(uint64_t extent, unsigned int level)
{
    uint64_t smaller = extent >> level;
    return extent && !smaller ? 1 : smaller;
}

static CUDA_ARRAY3D_DESCRIPTOR form_of_level(const CUDA_ARRAY3D_DESCRIPTOR *form,
                                             unsigned int level)
{
    CUDA_ARRAY3D_DESCRIPTOR smaller = *form;
    smaller.Width = halved(form->Width, level);
    smaller.Height = halved(form->Height, level);
    if (!array_is_layered(form))
        smaller.Depth = halved(form->Depth, level);
    return smaller;
}

static unsigned int clamp_levels(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int wanted)
{
    uint64_t largest = form->Width > form->Height ? form->Width : form->Height;
    if (!array_is_layered(form) && form->Depth > largest)
        largest = form->Depth;
    unsigned int most = 1;
    while (largest >> most)
        most++;
    return wanted < 1 ? 1 : wanted > most ? most : wanted;
}

static void lay_out(struct CUmipmappedArray_st *mipmap)
{
    for (unsigned int i = 0; i < mipmap->level_count; i++) {
        struct CUarray_st *level = &mipmap->levels[i];
        CUDA_ARRAY3D_DESCRIPTOR form = form_of_level(&mipmap->form, i);
        array_lay_out(level, &form);
        level->magic = MAGIC_ARRAY;
        level->context = mipmap->context;
        level->level = true;
    }
}

static CUresult map_later(struct CUmipmappedArray_st *mipmap)
{
    struct array_mappings *mappings = array_mappings_make(mipmap->context);
    for (unsigned int i = 0; i < mipmap->level_count; i++)
        mipmap->levels[i].mappings = mappings;
    return mappings ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Spreads the levels over an allocation. */
static void put_at(struct CUmipmappedArray_st *mipmap, CUdeviceptr address)
{
    struct allocation found;
    memory_find(address, 1, &found);
    for (unsigned int i = 0; i < mipmap->level_count; i++) {
        struct CUarray_st *level = &mipmap->levels[i];
        level->address = address;
        level->allocation_id = found.id;
        address += level->bytes;
    }
}

/* Makes one without memory. */
static CUresult prepare(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int level_count,
                        struct CUmipmappedArray_st **made)
{
    CURRENT_CONTEXT(context);
    CHECK(array_check_form(form, true));
    CHECK(capture_check_unsafe());
    level_count = clamp_levels(form, level_count);
    struct CUmipmappedArray_st *mipmap =
        calloc(1, sizeof *mipmap + level_count * sizeof mipmap->levels[0]);
    REFUSE_IF(!mipmap, CUDA_ERROR_OUT_OF_MEMORY);
    mipmap->magic = MAGIC_MIPMAP;
    mipmap->context = context;
    mipmap->form = *form;
    mipmap->level_count = level_count;
    lay_out(mipmap);
    *made = mipmap;
    return CUDA_SUCCESS;
}

/* Gives it to the program, or frees it. */
static CUresult finish(CUresult result, struct CUmipmappedArray_st *mipmap,
                       CUmipmappedArray *handle)
{
    if (result == CUDA_SUCCESS)
        *handle = mipmap;
    else
        free(mipmap);
    return result;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *form,
                                unsigned int level_count)
{
    struct CUmipmappedArray_st *mipmap;
    DRIVER_CHECK();
    CHECK(handle && form ? prepare(form, level_count, &mipmap) : CUDA_ERROR_INVALID_VALUE);
    if (array_maps_later(form))
        return finish(map_later(mipmap), mipmap, handle);
    CUdeviceptr address;
    CUresult result =
        memory_allocate(mipmap->context, array_cost(mipmap->levels, mipmap->level_count),
                        ALLOCATION_ARRAY, &address);
    if (result == CUDA_SUCCESS)
        put_at(mipmap, address);
    return finish(result, mipmap, handle);
}

CUresult cuExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray *handle, CUexternalMemory memory,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *description)
{
    struct CUmipmappedArray_st *mipmap;
    DRIVER_CHECK();
    INVALID_IF(!handle || !description || array_maps_later(&description->arrayDesc));
    CHECK(prepare(&description->arrayDesc, description->numLevels, &mipmap));
    CUdeviceptr address;
    CUresult result =
        external_map(memory, description->offset, array_cost(mipmap->levels, mipmap->level_count),
                     ALLOCATION_ARRAY, &address);
    if (result == CUDA_SUCCESS)
        put_at(mipmap, address);
    return finish(result, mipmap, handle);
}

CUresult mipmap_check(const struct CUmipmappedArray_st *mipmap)
{
    REFUSE_IF(!mipmap || mipmap->magic != MAGIC_MIPMAP, CUDA_ERROR_INVALID_HANDLE);
    return array_check(&mipmap->levels[0]);
}

CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned int level)
{
    CURRENT_CONTEXT(context);
    CHECK(mipmap_check(mipmap));
    INVALID_IF(!array || level >= mipmap->level_count);
    *array = &mipmap->levels[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    CURRENT_CONTEXT(context);
    REFUSE_IF(!mipmap || mipmap->magic != MAGIC_MIPMAP, CUDA_ERROR_INVALID_HANDLE);
    CHECK(capture_check_unsafe());
    CHECK(stream_calls_settle());
    CUresult result = mipmap_check(mipmap);
    if (mipmap->levels[0].mappings)
        array_mappings_end(mipmap->levels[0].mappings);
    else if (result == CUDA_SUCCESS)
        memory_forget(mipmap->levels[0].address);
    for (unsigned int i = 0; i < mipmap->level_count; i++)
        mipmap->levels[i].magic = 0;
    mipmap->magic = 0;
    free(mipmap);
    return result;
}
