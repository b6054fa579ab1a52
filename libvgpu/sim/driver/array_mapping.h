/*
 * Arrays whose memory is mapped in later: sparse ones, tile by tile, and those with deferred
 * mapping, whole. Such an array costs nothing. What of cuMemCreate is mapped to it lives at least
 * as long as it is mapped, or as the array and its context live.
 *
 * Who mapped what is kept under vmm_mutex, a list a array. Bytes are not kept: nothing can be
 * copied to or from such an array.
 */
#ifndef VGPU_SIM_ARRAY_MAPPING_H
#define VGPU_SIM_ARRAY_MAPPING_H

#include "array.h"
#include "vmm.h"

#define ARRAY_TILE_BYTES 65536u

/* What is mapped to one array. Whoever still has an operation on it under way refers to it too. */
struct array_mappings {
    struct CUctx_st *context;
    unsigned long long context_id; /* a primary context begins again under another one */
    struct array_tile *tiles;      /* mapped ones */
    unsigned int references;
    bool dead; /* the array, or its context, is gone */
    struct array_mappings *next;
};

static inline bool array_is_sparse(const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    return form->Flags & CUDA_ARRAY3D_SPARSE;
}

/* Whether arrays of this form are made without memory. */
static inline bool array_maps_later(const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    return form->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

struct array_mappings *array_mappings_make(struct CUctx_st *context); /* NULL: no host memory */
bool array_mappings_alive(const struct array_mappings *mappings);
/* Ends what is mapped to an array that is destroyed. */
void array_mappings_end(struct array_mappings *mappings);
/* The same for all arrays of a context. */
void array_mappings_end_context(const struct CUctx_st *context);

/* array_tile.c: how a sparse array is cut into tiles */
struct tile_layout {
    uint32_t width, height, depth; /* of a tile, in elements */
    uint32_t tail_level;           /* the first one that is in the tail of each layer */
    uint64_t tail_bytes;           /* of each layer, or of all where there is a single tail */
    bool single_tail;
};
/* `levels`: of a mipmapped array, each laid out; one for a plain array. */
struct tile_layout array_tile_layout(const struct CUarray_st *levels, uint32_t level_count);

/* Tiles of one level and layer; or, where `tail` is set, of its tail, as `x` and `width` alone. */
struct tile_box {
    bool tail;
    uint32_t level, layer;
    uint64_t x, y, z, width, height, depth;
};
/* Finds the tiles that a map operation on a sparse array names; false: it names none. */
bool array_tile_box(const CUarrayMapInfo *operation, const struct CUarray_st *levels,
                    uint32_t level_count, struct tile_box *box);

#endif
