/* What can be asked and set of functions and kernels, which are the same thing here; what is set is
 * kept for each device. */
#include "context_memory.h"

#define NO_CARVEOUT (-1)

static CUresult read_attribute(int *value, CUfunction_attribute attribute,
                               const struct CUfunc_st *function, const struct driver_device *device)
{
    const struct function_settings *settings = &function->settings[device->ordinal];
    const struct sim_profile *profile = &device->identity->profile;
    uint32_t architecture = profile->compute_major * 10 + profile->compute_minor;
    INVALID_IF(!value);
    switch ((int)attribute) {
#define IS(name, expression) \
    case CU_FUNC_ATTRIBUTE_##name: \
        *value = (int)(expression); \
        return CUDA_SUCCESS;
        IS(MAX_THREADS_PER_BLOCK, function->max_threads)
        IS(SHARED_SIZE_BYTES, function->shared_bytes)
        IS(CONST_SIZE_BYTES, function->image->constant_bytes)
        IS(LOCAL_SIZE_BYTES, function->local_bytes)
        IS(NUM_REGS, function->register_count)
        IS(PTX_VERSION,
           function->image->ptx_architecture ? function->image->ptx_architecture : architecture)
        IS(BINARY_VERSION, function->image->binary_architecture
                               ? function->image->binary_architecture
                               : architecture)
        IS(CACHE_MODE_CA, 0)
        IS(MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_shared_limit(function, device->ordinal))
        IS(PREFERRED_SHARED_MEMORY_CARVEOUT, settings->carveout_percent_plus_one - 1)
        IS(CLUSTER_SIZE_MUST_BE_SET, function->cluster_must_be_set)
        IS(REQUIRED_CLUSTER_WIDTH, function->required_cluster[0] ? function->required_cluster[0]
                                                                 : (uint32_t)settings->cluster[0])
        IS(REQUIRED_CLUSTER_HEIGHT, function->required_cluster[0] ? function->required_cluster[1]
                                                                  : (uint32_t)settings->cluster[1])
        IS(REQUIRED_CLUSTER_DEPTH, function->required_cluster[0] ? function->required_cluster[2]
                                                                 : (uint32_t)settings->cluster[2])
        IS(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, settings->non_portable_cluster)
        IS(CLUSTER_SCHEDULING_POLICY_PREFERENCE, settings->cluster_policy)
#undef IS
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult write_cluster(struct CUfunc_st *function, struct function_settings *settings,
                              int axis, int value)
{
    /* what the code says cannot be changed */
    REFUSE_IF(function->required_cluster[0], CUDA_ERROR_NOT_PERMITTED);
    INVALID_IF(value < 0);
    settings->cluster[axis] = value;
    function->clusters = true;
    return CUDA_SUCCESS;
}

static CUresult write_attribute(struct CUfunc_st *function, CUfunction_attribute attribute,
                                int value, const struct driver_device *device)
{
    struct function_settings *settings = &function->settings[device->ordinal];
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        INVALID_IF(value < 0 || (uint64_t)value + function->shared_bytes >
                                    device->identity->profile.shared_bytes_per_block);
        settings->dynamic_shared_bytes = (uint32_t)value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        INVALID_IF(value < NO_CARVEOUT || value > 100);
        settings->carveout_percent_plus_one = value + 1;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        return write_cluster(function, settings,
                             (int)attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, value);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        settings->non_portable_cluster = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        settings->cluster_policy = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult context_and_function(struct CUctx_st **context, CUfunction function)
{
    CHECK(context_current(context));
    return is_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    struct CUctx_st *context;
    CHECK(context_and_function(&context, function));
    return read_attribute(value, attribute, function, context->device);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    struct CUctx_st *context;
    CHECK(context_and_function(&context, function));
    return write_attribute(function, attribute, value, context->device);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    DRIVER_CHECK();
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE); /* a wish, as the next one */
    return (unsigned int)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
    DRIVER_CHECK();
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    return (unsigned int)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    struct CUctx_st *context;
    DRIVER_CHECK();
    INVALID_IF(!module);
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    if (function->image->library) {
        CUresult result = context_current(&context);
        return result == CUDA_SUCCESS ? library_module(function->image->library, context, module)
                                      : result;
    }
    *module = function->image->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    DRIVER_CHECK();
    INVALID_IF(!name);
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    *name = function->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    DRIVER_CHECK();
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    INVALID_IF(!offset || function->parameter_count == PARAMETERS_UNKNOWN ||
               index >= function->parameter_count);
    *offset = function->parameters[index].offset;
    if (bytes)
        *bytes = function->parameters[index].bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    DRIVER_CHECK();
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    function->loaded = true;
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    DRIVER_CHECK();
    INVALID_IF(!state);
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    *state =
        function->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static bool is_kernel(const struct CUfunc_st *function)
{
    return is_function(function) && function->image->library;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!function);
    REFUSE_IF(!is_kernel((CUfunction)kernel), CUDA_ERROR_INVALID_HANDLE);
    CHECK(library_module(((CUfunction)kernel)->image->library, context, NULL));
    *function = (CUfunction)kernel;
    (*function)->loaded = true;
    return context_load_code(context, *function);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    DRIVER_CHECK();
    INVALID_IF(!library);
    REFUSE_IF(!is_kernel((CUfunction)kernel), CUDA_ERROR_INVALID_HANDLE);
    *library = ((CUfunction)kernel)->image->library;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    return cuFuncGetName(name, (CUfunction)kernel);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    return cuFuncGetParamInfo((CUfunction)kernel, index, offset, bytes);
}

static CUresult check_kernel(CUkernel kernel, CUdevice device)
{
    DRIVER_CHECK();
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    return is_kernel((CUfunction)kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device)
{
    CHECK(check_kernel(kernel, device));
    ((CUfunction)kernel)->loaded = true; /* as it may be: a driver is free to load it for that */
    return read_attribute(value, attribute, (CUfunction)kernel, device_of(device));
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device)
{
    CHECK(check_kernel(kernel, device));
    return write_attribute((CUfunction)kernel, attribute, value, device_of(device));
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    CHECK(check_kernel(kernel, device));
    return cuFuncSetCacheConfig((CUfunction)kernel, config);
}
