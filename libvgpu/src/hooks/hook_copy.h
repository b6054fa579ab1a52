/* What every hook of a copy does (hook_copy.c, hook_copy_box.c). */
#ifndef VGPU_HOOK_COPY_H
#define VGPU_HOOK_COPY_H

#include "compute/copy_place.h"
#include "hooks/hook_launch.h"

#define COPY_SIDE(address) ((struct copy_side){CU_MEMORYTYPE_UNIFIED, address})

/* A copy inside one GPU is a launch, of `kind` and so many bytes. Any other one ends the open
 * measurement, so that the transfer is not taken for GPU time. */
#define COPY(symbol, kind, is_inside, bytes, stream, call) \
    do { \
        if (gate_is_open()) \
            return call; \
        NEED(symbol); \
        if (!(is_inside)) { \
            throttle_before_wait(); \
            return call; \
        } \
        LAUNCH(symbol, kind, bytes, stream, call); \
    } while (0)

#endif
