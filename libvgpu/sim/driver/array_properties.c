/* What arrays say of the memory that is mapped to them later. Others have no such thing, which is
 * documented to be CUDA_ERROR_INVALID_VALUE, as for a level of a mipmapped array. */
#include "array_mapping.h"

static CUresult requirements_of(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUdevice device,
                                const struct CUarray_st *levels, uint32_t level_count)
{
    INVALID_IF(!requirements || !(levels[0].form.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING));
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    *requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = array_cost(levels, level_count),
                                                     .alignment = DRIVER_ALLOCATION_ROUND};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray array,
                                      CUdevice device)
{
    DRIVER_CHECK();
    CHECK(array_check(array));
    INVALID_IF(array->level);
    return requirements_of(requirements, device, array, 1);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                               CUmipmappedArray mipmap, CUdevice device)
{
    DRIVER_CHECK();
    CHECK(mipmap_check(mipmap));
    return requirements_of(requirements, device, mipmap->levels, mipmap->level_count);
}

static CUresult properties_of(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                              const struct CUarray_st *levels, uint32_t level_count)
{
    INVALID_IF(!properties || !array_is_sparse(&levels[0].form));
    struct tile_layout layout = array_tile_layout(levels, level_count);
    *properties = (CUDA_ARRAY_SPARSE_PROPERTIES){
        .tileExtent = {.width = layout.width, .height = layout.height, .depth = layout.depth},
        .miptailFirstLevel = layout.tail_bytes && !layout.single_tail ? layout.tail_level : 0,
        .miptailSize = layout.tail_bytes,
        .flags = layout.single_tail ? CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL : 0,
    };
    return CUDA_SUCCESS;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray array)
{
    DRIVER_CHECK();
    CHECK(array_check(array));
    INVALID_IF(array->level);
    return properties_of(properties, array, 1);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                             CUmipmappedArray mipmap)
{
    DRIVER_CHECK();
    CHECK(mipmap_check(mipmap));
    return properties_of(properties, mipmap->levels, mipmap->level_count);
}
