/* A libcuda.so.1 in front of the simulated one, which it needs by its path and to which it
 * leaves all else: it has what a driver of a CUDA version to come could have. With NAME_ALONE there
 * is nothing in it, and it stands in for the simulated one when the other is linked. */
#include <dlfcn.h>
#include <string.h>

#include "vgpu/cuda_api.h"

#ifndef NAME_ALONE
#define NEXT_VERSION 14000

/* Of the newer ABI: what the older one takes as a size is a description here. */
static CUresult newer_alloc(CUdeviceptr *pointer, const size_t *description, cuuint64_t flags)
{
    *pointer = *description + flags;
    return CUDA_SUCCESS;
}

static CUresult by_address_only(void)
{
    return CUDA_SUCCESS;
}

CUresult cuFutureCall(void)
{
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (strcmp(name, "cuFutureCall") == 0)
        *function = (void *)cuFutureCall;
    else if (strcmp(name, "cuFutureHidden") == 0)
        *function = (void *)by_address_only;
    else if (strcmp(name, "cuMemAlloc") == 0 && version >= NEXT_VERSION)
        *function = (void *)newer_alloc;
    else {
        void *next = dlopen(SIMULATED, RTLD_NOW | RTLD_NOLOAD);
        __typeof__(&cuGetProcAddress_v2) ask = dlsym(next, "cuGetProcAddress_v2");
        return ask(name, function, version, flags, status);
    }
    if (status != NULL)
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}
#endif
