/*
 * Launches of the kind that CUDA 3 had: shape, shared memory and arguments are set on the function
 * beforehand, and the launch takes what stands there. Like the driver this keeps apart neither
 * threads nor contexts that set a function up at the same time.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define MOST_ARGUMENT_BYTES 4096

struct legacy_launch {
    unsigned int block[3];
    unsigned int shared_bytes;
    size_t argument_bytes;
    char arguments[MOST_ARGUMENT_BYTES];
};

void legacy_launch_free(struct legacy_launch *legacy)
{
    free(legacy);
}

static CUresult state_of(CUfunction function, struct legacy_launch **legacy)
{
    CURRENT_CONTEXT(context);
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    if (!function->legacy)
        function->legacy = calloc(1, sizeof *function->legacy);
    *legacy = function->legacy;
    return *legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    struct legacy_launch *legacy;
    CHECK(state_of(function, &legacy));
    INVALID_IF(x <= 0 || y <= 0 || z <= 0);
    legacy->block[0] = (unsigned int)x;
    legacy->block[1] = (unsigned int)y;
    legacy->block[2] = (unsigned int)z;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned int bytes)
{
    struct legacy_launch *legacy;
    CHECK(state_of(function, &legacy));
    legacy->shared_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction function, unsigned int bytes)
{
    struct legacy_launch *legacy;
    CHECK(state_of(function, &legacy));
    INVALID_IF(bytes > MOST_ARGUMENT_BYTES);
    legacy->argument_bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult set_argument(CUfunction function, int offset, const void *value, size_t bytes)
{
    struct legacy_launch *legacy;
    CHECK(state_of(function, &legacy));
    INVALID_IF(offset < 0 || !value || (size_t)offset > MOST_ARGUMENT_BYTES ||
               bytes > MOST_ARGUMENT_BYTES - (size_t)offset);
    memcpy(legacy->arguments + offset, value, bytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned int value)
{
    return set_argument(function, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction function, int offset, float value)
{
    return set_argument(function, offset, &value, sizeof value);
}

CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes)
{
    return set_argument(function, offset, value, bytes);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    struct legacy_launch *legacy;
    CHECK(state_of(function, &legacy));
    INVALID_IF(width <= 0 || height <= 0);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, legacy->arguments, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &legacy->argument_bytes, CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(function, (unsigned int)width, (unsigned int)height, 1, legacy->block[0],
                          legacy->block[1], legacy->block[2], legacy->shared_bytes, stream, NULL,
                          extra);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return cuLaunchGridAsync(function, width, height, CU_STREAM_LEGACY);
}

CUresult cuLaunch(CUfunction function)
{
    return cuLaunchGrid(function, 1, 1);
}

/* ---- one kernel on several devices ----------------------------------------------------------- */

/* As documented: the same kernel and shape on each, no device twice, and no default stream. That
 * the kernels wait for one another is not modelled. */
static CUresult check_multi_device(const CUDA_LAUNCH_PARAMS *launches, unsigned int count)
{
    uint32_t devices = 0;
    for (unsigned int i = 0; i < count; i++) {
        struct CUstream_st *stream;
        const CUDA_LAUNCH_PARAMS *each = &launches[i];
        REFUSE_IF(!is_function(each->function) || !is_function(launches->function),
                  CUDA_ERROR_INVALID_HANDLE);
        INVALID_IF(!each->hStream || each->hStream == CU_STREAM_LEGACY ||
                   each->hStream == CU_STREAM_PER_THREAD);
        CHECK(stream_resolve(each->hStream, &stream));
        uint32_t device = 1u << stream->context->device->ordinal;
        INVALID_IF(
            devices & device || strcmp(each->function->name, launches->function->name) != 0 ||
            each->gridDimX != launches->gridDimX || each->gridDimY != launches->gridDimY ||
            each->gridDimZ != launches->gridDimZ || each->blockDimX != launches->blockDimX ||
            each->blockDimY != launches->blockDimY || each->blockDimZ != launches->blockDimZ ||
            each->sharedMemBytes != launches->sharedMemBytes);
        devices |= device;
    }
    return CUDA_SUCCESS;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count,
                                              unsigned int flags)
{
    DRIVER_CHECK();
    INVALID_IF(!launches || count == 0 || count > (unsigned int)driver.device_count || flags & ~3u);
    CUresult result = check_multi_device(launches, count);
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = cuLaunchCooperativeKernel(
            launches[i].function, launches[i].gridDimX, launches[i].gridDimY, launches[i].gridDimZ,
            launches[i].blockDimX, launches[i].blockDimY, launches[i].blockDimZ,
            launches[i].sharedMemBytes, launches[i].hStream, launches[i].kernelParams);
    return result;
}
