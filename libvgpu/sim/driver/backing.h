/* Which parts of the device's memory have host memory behind them; backing.c. */
#ifndef VGPU_SIM_BACKING_H
#define VGPU_SIM_BACKING_H

#include <stdint.h>

#include "vgpu/cuda_api.h"

struct allocation;

/* A box of bytes in memory: slices of rows. A plain range is one slice of one row. The pitches
 * count where there is more than one row or slice; then they are no less than what they step
 * over. */
struct region {
    uint64_t address;
    uint64_t width_bytes;
    uint64_t rows, slices;
    uint64_t pitch_bytes;       /* from row to row */
    uint64_t slice_pitch_bytes; /* from slice to slice */
};

static inline uint64_t region_span_bytes(const struct region *region)
{
    return (region->slices - 1) * region->slice_pitch_bytes +
           (region->rows - 1) * region->pitch_bytes + region->width_bytes;
}

static inline uint64_t region_bytes(const struct region *region)
{
    return region->width_bytes * region->rows * region->slices;
}

struct driver_device;

/* Of one allocation or one piece of physical memory, all zero until it is written: one bit a
 * granule. */
struct backing {
    uint64_t bytes;               /* counted on the device */
    uint64_t few;                 /* the bits, where there are no more granules than this has */
    uint64_t *many;               /* the bits of something larger, allocated with the first */
    uint64_t span_bytes;          /* of what the bits are; set with the first */
    struct driver_device *device; /* the same */
};

/* Counts the host memory that writing to a region takes. Where the machine has no more of it,
 * CUDA_ERROR_OUT_OF_MEMORY is the answer. */
CUresult backing_claim(const struct region *region);
/* Makes the bytes of one row zero without taking host memory for them. */
void backing_clear(uint64_t address, uint64_t bytes);
/* What it belongs to is out of the map and will be unmapped. */
void backing_give_up(struct backing *backing);

#endif
