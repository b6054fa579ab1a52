/* What every hook begins with. */
#ifndef VGPU_HOOK_H
#define VGPU_HOOK_H

#include "hooks/export.h"
#include "hooks/real.h"

/* The driver must be there, or the program could not have found the hook. */
#define NEED(symbol) \
    do { \
        if (!real_load_cuda() || real.symbol == NULL) \
            return CUDA_ERROR_NOT_INITIALIZED; \
    } while (0)

#endif
