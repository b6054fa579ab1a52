/* What every hook of a copy does (hook_copy.c, hook_copy_box.c): copy_ask, the driver, launch_end.
 *
 * A copy takes GPU time if its two sides are memory of one GPU: it is a launch, of `kind` and so many bytes.
 * Copies from and to the host, and between GPUs, are transfers; they run next to kernels, on engines of their
 * own. Such a one ends the open measurement, so that it is not taken for GPU time. */
#ifndef VGPU_HOOK_COPY_H
#define VGPU_HOOK_COPY_H

#include "hooks/hook_launch.h"

struct copy_side {
    CUmemorytype type;
    CUdeviceptr address; /* where it is not an array */
};

#define COPY_SIDE(address) ((struct copy_side){CU_MEMORYTYPE_UNIFIED, address})

/* The decision where the gate is shut. A copy of no bytes is the driver's business. */
CUresult copy_ask(struct launch *launch, const void *field, const void *kind,
                  struct copy_side target, struct copy_side source, uint64_t bytes,
                  CUstream stream);

#endif
