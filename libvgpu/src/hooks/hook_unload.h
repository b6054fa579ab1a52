/* Behind the driver's call that unloads code: other functions may get the same handles. */
#ifndef VGPU_HOOK_UNLOAD_H
#define VGPU_HOOK_UNLOAD_H

#include "compute/collective.h"
#include "compute/throttle.h"
#include "memory/local_memory.h"
#include "memory/reconcile.h"
#include "vgpu/cuda_api.h"

/* Returns the call's answer. `owner`: the module or library. */
static inline CUresult code_unloaded(const void *owner, CUresult result)
{
    if (result == CUDA_SUCCESS)
        local_memory_unloaded(owner);
    collective_forget();
    throttle_forget_functions();
    reconcile_soon(); /* what it loaded later is gone, too */
    return result;
}

#endif
