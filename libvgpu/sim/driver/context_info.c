/* What can be asked of a context, and waiting for all of its work. */
#include "driver.h"

CUresult cuCtxGetDevice(CUdevice *device)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

static CUresult given_or_current(CUcontext given, struct CUctx_st **context)
{
    if (!given)
        return context_current(context);
    DRIVER_CHECK();
    if (given->magic != MAGIC_CONTEXT)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!given->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = given;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext given)
{
    struct CUctx_st *context;
    CUresult result = given_or_current(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult context_wait(struct CUctx_st *context)
{
    for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
        uint64_t last = __atomic_load_n(&context->last[lane], __ATOMIC_ACQUIRE);
        if (last)
            sim_queue_wait(context->device->device, last);
    }
    pool_trim_device(context->device, true);
    return context->device->device->failed ? CUDA_ERROR_MPS_RPC_FAILURE : CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext given)
{
    struct CUctx_st *context;
    CUresult result = given_or_current(given, &context);
    if (result == CUDA_SUCCESS)
        result = capture_check_unsafe();
    return result == CUDA_SUCCESS ? context_wait(context) : result;
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext given, unsigned long long *id)
{
    struct CUctx_st *context;
    CUresult result = given_or_current(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext given, unsigned int *version)
{
    struct CUctx_st *context;
    CUresult result = given_or_current(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020; /* of the context interface, as the driver has said since */
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned int)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned int)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context->limits[limit] = value; /* remembered; what it takes of the device is not charged */
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct CUctx_st *context;
    (void)config; /* a wish */
    return context_current(&context);
}
