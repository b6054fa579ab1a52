/* Behind the driver's call that unloads code: other functions may get the same handles. */
#ifndef VGPU_HOOK_UNLOAD_H
#define VGPU_HOOK_UNLOAD_H

#include "compute/collective.h"
#include "compute/throttle.h"
#include "vgpu/cuda_api.h"

/* Returns the call's answer. */
static inline CUresult code_unloaded(CUresult result)
{
    collective_forget();
    throttle_forget_functions();
    return result;
}

#endif
