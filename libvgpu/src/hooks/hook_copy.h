/* What every hook of a copy does (hook_copy.c, hook_copy_box.c): copy_begin, the driver, launch_end.
 *
 * A copy inside one GPU is a launch, of `kind` and so many bytes. Any other one ends the open
 * measurement, so that the transfer is not taken for GPU time. */
#ifndef VGPU_HOOK_COPY_H
#define VGPU_HOOK_COPY_H

#include "compute/measure/copy_place.h"
#include "hooks/hook_launch.h"

#define COPY_SIDE(address) ((struct copy_side){CU_MEMORYTYPE_UNIFIED, address})

/* The decision where the gate is shut. A copy of no bytes is the driver's business. */
struct launch copy_ask(const void *field, const void *kind, struct copy_side target,
                       struct copy_side source, uint64_t bytes, CUstream stream);

static inline __attribute__((always_inline)) struct launch copy_begin(
    const void *field, const void *kind, struct copy_side target, struct copy_side source,
    uint64_t bytes, CUstream stream)
{
    if (gate_is_open())
        return (struct launch){0};
    return copy_ask(field, kind, target, source, bytes, stream);
}

#endif
