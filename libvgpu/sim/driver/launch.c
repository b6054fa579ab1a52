/*
 * Launches. What a kernel costs: an entry named `spin_ns` takes its first argument in nanoseconds
 * of the whole device; any other kernel is estimated from its grid: the device runs as many threads
 * at once as its SMs hold, and each such wave takes WAVE_NS. Kernels compute nothing.
 */
#include <string.h>

#include "driver.h"

#define LAUNCH_NS 2000
#define WAVE_NS 5000

/* Reads the first argument, an integer of 4 or 8 bytes. */
static CUresult read_first_argument(const struct CUfunc_st *function, const struct launch *launch,
                                    uint64_t *value)
{
    uint32_t bytes = function->parameter_count != UINT32_MAX && function->parameter_count
                         ? function->parameters[0].bytes
                         : sizeof(uint64_t);
    const void *argument = NULL;
    if (launch->params) {
        argument = launch->params[0];
    } else if (launch->extra) {
        for (void **at = launch->extra; *at != CU_LAUNCH_PARAM_END; at += 2)
            if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
                argument = at[1];
    }
    if (!argument || bytes > sizeof *value)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    memcpy(value, argument, bytes);
    return CUDA_SUCCESS;
}

CUresult launch_describe(struct CUfunc_st *function, struct driver_device *device,
                         const struct launch *launch, uint64_t *cost_ns)
{
    if (!function || function->magic != MAGIC_FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    const struct sim_profile *profile = &device->identity->profile;
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    uint32_t shared_limit = function->dynamic_shared_bytes > 0
                                ? (uint32_t)function->dynamic_shared_bytes
                                : DRIVER_STATIC_SHARED_BYTES;
    if (blocks == 0 || threads == 0 || threads > DRIVER_MAX_BLOCK_THREADS ||
        launch->block[2] > 64 || launch->grid[1] > 65535 || launch->grid[2] > 65535 ||
        launch->shared_bytes > shared_limit || (launch->params && launch->extra))
        return CUDA_ERROR_INVALID_VALUE;
    if (function->parameter_count && function->parameter_count != UINT32_MAX && !launch->params &&
        !launch->extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (function->spins)
        return read_first_argument(function, launch, cost_ns);
    uint64_t at_once = (uint64_t)profile->sm_count * profile->threads_per_sm;
    *cost_ns = LAUNCH_NS + (blocks * threads + at_once - 1) / at_once * WAVE_NS;
    return CUDA_SUCCESS;
}

static CUresult launch_kernel(CUfunction function, const struct launch *launch, CUstream handle)
{
    struct CUstream_st *stream;
    uint64_t cost_ns = 0;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    result = launch_describe(function, stream->context->device, launch, &cost_ns);
    if (result != CUDA_SUCCESS)
        return result;
    if (__builtin_expect(stream->capture != NULL, 0)) {
        struct graph_node node = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                  .cost_ns = cost_ns,
                                  .kernels = 1,
                                  .function = function,
                                  .launch = launch};
        return capture_add(stream, &node);
    }
    struct sim_submission submission = {
        .cost_ns = cost_ns, .kind = SIM_OPERATION_KERNEL, .kernels = 1};
    stream_submit(stream, &submission);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    struct launch launch = {.grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared_bytes = shared_bytes,
                            .params = params,
                            .extra = extra};
    return launch_kernel(function, &launch, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra)
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params)
{
    int resident = 0;
    CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &resident, function, (int)(block_x * block_y * block_z), shared_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    struct CUstream_st *resolved;
    result = stream_resolve(stream, &resolved);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t most = (uint64_t)resident * resolved->context->device->identity->profile.sm_count;
    if ((uint64_t)grid_x * grid_y * grid_z > most)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          stream, params, NULL);
}
