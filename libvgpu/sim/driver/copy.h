/* Moving bytes: what all copies and fills end in (copy.c), and boxes in memory (copy_region.c). */
#ifndef VGPU_SIM_COPY_H
#define VGPU_SIM_COPY_H

#include "driver.h"

/* Copies between two regions of the same extent, whose addresses are good. `wait`: for the end
 * where the host has a part in it. */
CUresult copy_issue(struct CUstream_st *stream, const struct region *target,
                    const struct region *source, bool wait);
CUresult fill_issue(struct CUstream_st *stream, const struct region *target, unsigned int value,
                    unsigned int value_bytes);

static inline struct region region_of_row(uint64_t address, uint64_t bytes)
{
    return (struct region){.address = address, .width_bytes = bytes, .rows = 1, .slices = 1};
}

/* One side of a copy as its caller describes it. */
struct copy_operand {
    CUmemorytype type;
    uint64_t address; /* without an array */
    CUarray array;
    uint64_t x_bytes, y, z;
    uint64_t pitch_bytes, height; /* 0: packed */
};
struct copy_extent {
    uint64_t width_bytes, height, depth;
};
/* Finds the region of an operand; CUDA_ERROR_INVALID_VALUE where it lies outside. */
CUresult copy_resolve(const struct copy_operand *operand, const struct copy_extent *extent,
                      struct region *region);
CUresult copy_between(struct CUstream_st *stream, const struct copy_operand *target,
                      const struct copy_operand *source, const struct copy_extent *extent,
                      bool wait);

#endif
