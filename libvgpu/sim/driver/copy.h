/* Moving bytes: what all copies and fills end in (copy.c), and boxes in memory (copy_region.c). */
#ifndef VGPU_SIM_COPY_H
#define VGPU_SIM_COPY_H

#include "driver.h"

/* The node of a copy, as a graph keeps it, and whether host memory takes part. `device` is the one
 * that runs it. */
void copy_describe(const struct driver_device *device, const struct region *target,
                   const struct region *source, struct graph_node *node, bool *with_host);
void fill_describe(const struct driver_device *device, const struct region *target,
                   unsigned int value, unsigned int value_bytes, struct graph_node *node);
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
/* Finds both regions of a box that is not empty. */
CUresult copy_resolve_box(const CUDA_MEMCPY3D *box, struct region *target, struct region *source);
CUresult copy_between(struct CUstream_st *stream, const struct copy_operand *target,
                      const struct copy_operand *source, const struct copy_extent *extent,
                      bool wait);

#endif
