/* What can be asked of functions and kernels (the same thing here), and occupancy. */
#include "driver.h"

#define WARP_THREADS 32
#define REGISTERS_PER_THREAD 32

static bool is_function(const struct CUfunc_st *function)
{
    return function && function->magic == MAGIC_FUNCTION;
}

static CUresult read_attribute(int *value, CUfunction_attribute attribute,
                               const struct CUfunc_st *function, const struct sim_profile *profile)
{
    int architecture = (int)(profile->compute_major * 10 + profile->compute_minor);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = DRIVER_MAX_BLOCK_THREADS;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = REGISTERS_PER_THREAD;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = architecture;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->dynamic_shared_bytes ? function->dynamic_shared_bytes
                                                : DRIVER_STATIC_SHARED_BYTES;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = -1;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return CUDA_SUCCESS;
    }
}

static CUresult write_attribute(struct CUfunc_st *function, CUfunction_attribute attribute,
                                int value, const struct sim_profile *profile)
{
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        return CUDA_SUCCESS; /* a wish */
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        (uint32_t)value > profile->shared_bytes_per_block)
        return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_shared_bytes = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    return read_attribute(value, attribute, function, &context->device->identity->profile);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    return write_attribute(function, attribute, value, &context->device->identity->profile);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    DRIVER_CHECK();
    (void)config;
    return is_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    DRIVER_CHECK();
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    DRIVER_CHECK();
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *name = function->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    DRIVER_CHECK();
    return is_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    DRIVER_CHECK();
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_function((CUfunction)kernel))
        return CUDA_ERROR_INVALID_HANDLE;
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    return cuFuncGetName(name, (CUfunction)kernel);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device)
{
    DRIVER_CHECK();
    if (!device_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!is_function((CUfunction)kernel))
        return CUDA_ERROR_INVALID_HANDLE;
    return read_attribute(value, attribute, (CUfunction)kernel,
                          &device_of(device)->identity->profile);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device)
{
    DRIVER_CHECK();
    if (!device_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!is_function((CUfunction)kernel))
        return CUDA_ERROR_INVALID_HANDLE;
    return write_attribute((CUfunction)kernel, attribute, value,
                           &device_of(device)->identity->profile);
}

/* ---- occupancy: by threads, shared memory and block slots of an SM --------------------------- */

static int blocks_per_sm(const struct sim_profile *profile, int block_threads, size_t shared_bytes)
{
    uint32_t threads = (uint32_t)(block_threads + WARP_THREADS - 1) / WARP_THREADS * WARP_THREADS;
    uint32_t blocks = profile->threads_per_sm / threads;
    if (shared_bytes && profile->shared_bytes_per_sm / shared_bytes < blocks)
        blocks = (uint32_t)(profile->shared_bytes_per_sm / shared_bytes);
    return (int)(blocks < profile->blocks_per_sm ? blocks : profile->blocks_per_sm);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                     int block_threads, size_t shared_bytes)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!blocks || block_threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *blocks = block_threads > DRIVER_MAX_BLOCK_THREADS
                  ? 0
                  : blocks_per_sm(&context->device->identity->profile, block_threads, shared_bytes);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int block_threads,
                                                              size_t shared_bytes,
                                                              unsigned int flags)
{
    return flags & ~1u ? CUDA_ERROR_INVALID_VALUE
                       : cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function,
                                                                     block_threads, shared_bytes);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid_blocks, int *block_threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared_bytes,
                                          int block_limit)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!grid_blocks || !block_threads)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_function(function))
        return CUDA_ERROR_INVALID_HANDLE;
    const struct sim_profile *profile = &context->device->identity->profile;
    int best_threads = 0, best_resident = 0;
    int limit = block_limit > 0 && block_limit < DRIVER_MAX_BLOCK_THREADS
                    ? block_limit
                    : DRIVER_MAX_BLOCK_THREADS;
    for (int threads = limit / WARP_THREADS * WARP_THREADS; threads > 0; threads -= WARP_THREADS) {
        size_t shared = shared_of ? shared_of(threads) : shared_bytes;
        int resident = threads * blocks_per_sm(profile, threads, shared);
        if (resident > best_resident) {
            best_resident = resident;
            best_threads = threads;
        }
    }
    *block_threads = best_threads;
    *grid_blocks = best_threads ? best_resident / best_threads * (int)profile->sm_count : 0;
    return CUDA_SUCCESS;
}
