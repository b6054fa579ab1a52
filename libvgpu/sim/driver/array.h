/* CUDA arrays: their layout in memory; array.c, mipmap.c. */
#ifndef VGPU_SIM_ARRAY_H
#define VGPU_SIM_ARRAY_H

#include "copy.h"

struct array_mappings;

struct CUarray_st {
    uint64_t magic;
    struct CUctx_st *context;
    CUDA_ARRAY3D_DESCRIPTOR form;
    uint32_t element_bytes;
    uint64_t pitch_bytes; /* from row to row */
    uint64_t slice_bytes; /* from slice or layer to the next */
    uint64_t bytes;
    CUdeviceptr address;
    unsigned long long allocation_id; /* tells whether the memory is still there */
    bool level;                       /* of a mipmapped array, which owns it */
    struct array_mappings *mappings;  /* without memory of its own (array_mapping.h); else NULL */
};

struct CUmipmappedArray_st {
    uint64_t magic;
    struct CUctx_st *context;
    CUDA_ARRAY3D_DESCRIPTOR form;
    unsigned int level_count;
    struct CUarray_st levels[];
};

/* The layers of a layered array or of a cubemap are slices that do not shrink with the level. */
bool array_is_layered(const CUDA_ARRAY3D_DESCRIPTOR *form);
/* Whether an array of this form can be; CUDA_ERROR_NOT_SUPPORTED: on a real device only. */
CUresult array_check_form(const CUDA_ARRAY3D_DESCRIPTOR *form, bool mipmapped);
/* Fills in the sizes of an array of a good form. */
void array_lay_out(struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *form);
/* What an array with all its levels costs. */
uint64_t array_cost(const struct CUarray_st *levels, uint32_t level_count);
/* CUDA_SUCCESS, INVALID_HANDLE, or CONTEXT_IS_DESTROYED, which took the memory along. */
CUresult array_check(const struct CUarray_st *array);
CUresult mipmap_check(const struct CUmipmappedArray_st *mipmap);
/* Bytes of an element; 0: no such format, or one that is not modelled. */
uint32_t array_element_bytes(CUarray_format format, unsigned int channels);
/* Finds the part of an array that a copy names; CUDA_ERROR_INVALID_VALUE where it goes beyond. */
CUresult array_region(const struct CUarray_st *array, const struct copy_operand *operand,
                      const struct copy_extent *extent, struct region *region);

#endif
