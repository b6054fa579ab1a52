/* Which copies take GPU time: those whose two sides are memory of one GPU. Copies from and to the
 * host, and between GPUs, are transfers; they run next to kernels, on engines of their own.
 *
 * Asks the driver, which keeps what it knows of an address; holds no state of its own. */
#ifndef VGPU_COPY_PLACE_H
#define VGPU_COPY_PLACE_H

#include <stdbool.h>

#include "vgpu/cuda_api.h"

struct copy_side {
    CUmemorytype type;
    CUdeviceptr address; /* where it is not an array */
};

/* True when both sides are on one GPU, as far as can be told: arrays do not say on which. What the
 * driver does not know is memory of the host. */
bool copy_is_inside(struct copy_side target, struct copy_side source);

#endif
