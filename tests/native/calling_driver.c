/* A libcuda.so.1 in front of the simulated one, which it needs by its path and to which it leaves all else: it
 * calls a tool back within the calls that make, limit and end contexts, as the driver does for tools that
 * instrument programs. With NAME_ALONE there is nothing in it, and it stands in for the simulated one when the
 * other is linked. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "vgpu/cuda_api.h"

#ifndef NAME_ALONE
static void *find_next(const char *symbol)
{
    return dlsym(dlopen(SIMULATED, RTLD_NOW | RTLD_NOLOAD), symbol);
}

/* Not within what the tool calls itself. */
static CUresult call_back(CUresult result, const CUcontext *context)
{
    static __thread bool is_inside;
    void (*tool)(CUcontext) = (void (*)(CUcontext))dlsym(RTLD_DEFAULT, "called_back");
    if (result != CUDA_SUCCESS || is_inside)
        return result;
    is_inside = true;
    tool(*context);
    is_inside = false;
    return result;
}

#define NEXT(symbol) ((__typeof__(&symbol))find_next(#symbol))

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    return call_back(NEXT(cuDevicePrimaryCtxRetain)(context, device), context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    return call_back(NEXT(cuCtxCreate_v2)(context, flags, device), context);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUcontext context = NULL;
    NEXT(cuCtxGetCurrent)(&context);
    return call_back(NEXT(cuCtxSetLimit)(limit, value), &context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    call_back(CUDA_SUCCESS, &context);
    return NEXT(cuCtxDestroy_v2)(context);
}
#endif
