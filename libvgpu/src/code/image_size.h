/* How much device memory the variables of an image of device code take: PTX (ptx_size.c), a cubin
 * (cubin_size.c) or a bundle of both (fatbin_size.c). Each variable counts in whole granules, as
 * each may be placed alone; so the answer is what the driver takes, or more. Pure; any thread. */
#ifndef VGPU_IMAGE_SIZE_H
#define VGPU_IMAGE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "code/image_view.h"

#define IMAGE_GRANULE_BYTES 512u
#define IMAGE_MOST_BYTES (1ull << 41) /* more than any GPU has: sums stop here */

struct image_size {
    uint64_t variable_bytes;
    uint64_t code_bytes;  /* the most that instructions and tables take; of PTX a guess */
    uint64_t image_bytes; /* of the image itself, as far as it says */
    bool is_unknown;      /* there is more that could not be read: what it takes must be measured */
};

/* The driver's choice from a bundle depends on the GPU: `architecture` is 90 for compute capability
 * 9.0, 0 for any. */
struct image_size image_size(const struct image_view *view, uint32_t architecture);

/* Adds a variable: rounded up to granules and to its own alignment. */
void image_size_add_variable(struct image_size *size, uint64_t bytes, uint64_t alignment);

/* The larger of each: for images of which the driver loads one. */
void image_size_raise(struct image_size *size, const struct image_size *other);

#endif
