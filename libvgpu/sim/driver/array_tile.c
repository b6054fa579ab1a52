/*
 * Tiles of sparse arrays: 64 KiB each, of the shapes that graphics interfaces call the standard
 * ones, as square (or cubic) as the element allows. The levels that are smaller than a tile in any
 * direction are the tail of a mipmapped array, in each layer one; an array which is that small
 * itself is nothing but a single tail.
 */
#include "array_mapping.h"

static uint64_t tiles_over(uint64_t extent, uint64_t tile)
{
    return (extent + tile - 1) / tile;
}

static bool is_deep(const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    return form->Depth && !array_is_layered(form);
}

/* Of 2^bits elements: halves go to the width first, then to the height, then to the depth. */
static void shape_tile(struct tile_layout *layout, uint32_t element_bytes, bool deep)
{
    uint32_t bits = 16; /* ARRAY_TILE_BYTES */
    for (uint32_t bytes = element_bytes; bytes > 1; bytes /= 2)
        bits--;
    uint32_t directions = deep ? 3 : 2;
    layout->width = 1u << (bits + directions - 1) / directions;
    layout->height = 1u << (bits + directions - 2) / directions;
    layout->depth = deep ? 1u << bits / 3 : 1;
}

static bool smaller_than_a_tile(const CUDA_ARRAY3D_DESCRIPTOR *form,
                                const struct tile_layout *layout)
{
    return form->Width < layout->width || form->Height < layout->height ||
           (is_deep(form) && form->Depth < layout->depth);
}

struct tile_layout array_tile_layout(const struct CUarray_st *levels, uint32_t level_count)
{
    const CUDA_ARRAY3D_DESCRIPTOR *form = &levels[0].form;
    struct tile_layout layout = {0};
    uint64_t tail_bytes = 0;
    shape_tile(&layout, levels[0].element_bytes, is_deep(form));
    while (layout.tail_level < level_count &&
           !smaller_than_a_tile(&levels[layout.tail_level].form, &layout))
        layout.tail_level++;
    layout.single_tail = !levels[0].level && layout.tail_level == 0;
    for (uint32_t level = layout.tail_level; level < level_count; level++)
        tail_bytes += array_is_layered(form) && !layout.single_tail ? levels[level].slice_bytes
                                                                    : levels[level].bytes;
    layout.tail_bytes = tiles_over(tail_bytes, ARRAY_TILE_BYTES) * ARRAY_TILE_BYTES;
    return layout;
}

static bool layer_exists(const CUDA_ARRAY3D_DESCRIPTOR *form, uint64_t layer)
{
    return array_is_layered(form) ? layer < form->Depth : layer == 0;
}

/* Whether a stretch of elements is one of whole tiles; the last one may stand out of the level. */
static bool cut(uint64_t offset, uint64_t extent, uint64_t whole, uint64_t tile, uint64_t *first,
                uint64_t *count)
{
    *first = offset / tile;
    *count = tiles_over(extent, tile);
    return extent && offset % tile == 0 && (extent % tile == 0 || offset + extent == whole) &&
           *first + *count <= tiles_over(whole, tile);
}

static bool tail_box(const CUarrayMapInfo *operation, const CUDA_ARRAY3D_DESCRIPTOR *form,
                     const struct tile_layout *layout, struct tile_box *box)
{
    uint64_t offset = operation->subresource.miptail.offset;
    uint64_t bytes = operation->subresource.miptail.size;
    box->tail = true;
    box->layer = operation->subresource.miptail.layer;
    box->x = offset / ARRAY_TILE_BYTES;
    box->width = bytes / ARRAY_TILE_BYTES;
    box->height = box->depth = 1;
    return (layout->single_tail ? box->layer == 0 : layer_exists(form, box->layer)) && bytes &&
           offset % ARRAY_TILE_BYTES == 0 && bytes % ARRAY_TILE_BYTES == 0 &&
           offset <= layout->tail_bytes && bytes <= layout->tail_bytes - offset;
}

bool array_tile_box(const CUarrayMapInfo *operation, const struct CUarray_st *levels,
                    uint32_t level_count, struct tile_box *box)
{
    struct tile_layout layout = array_tile_layout(levels, level_count);
    *box = (struct tile_box){0};
    if (operation->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
        return tail_box(operation, &levels[0].form, &layout, box);
    if (operation->subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL ||
        operation->subresource.sparseLevel.level >= layout.tail_level)
        return false;
    box->level = operation->subresource.sparseLevel.level;
    box->layer = operation->subresource.sparseLevel.layer;
    const CUDA_ARRAY3D_DESCRIPTOR *form = &levels[box->level].form;
    return layer_exists(form, box->layer) &&
           cut(operation->subresource.sparseLevel.offsetX,
               operation->subresource.sparseLevel.extentWidth, form->Width, layout.width, &box->x,
               &box->width) &&
           cut(operation->subresource.sparseLevel.offsetY,
               operation->subresource.sparseLevel.extentHeight, form->Height, layout.height,
               &box->y, &box->height) &&
           cut(operation->subresource.sparseLevel.offsetZ,
               operation->subresource.sparseLevel.extentDepth, is_deep(form) ? form->Depth : 1,
               layout.depth, &box->z, &box->depth);
}
