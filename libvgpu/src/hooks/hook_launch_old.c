/* Hooks of the launches that came before cuLaunchKernel, and of the one that takes several devices.
 *
 * The old ones take grid and stream alone, the rest was set on the function beforehand. A launch on
 * several devices is one call: it waits for the cap of each device before that call, is charged
 * to each, and never waits between its parts, whose kernels may wait for one another. */
#include "hooks/hook_launch.h"
#include "memory/local/local_functions.h"
#include "vgpu/contract.h"

/* The driver refuses a grid without blocks. */
static uint64_t blocks_of(int width, int height)
{
    return width > 0 && height > 0 ? (uint64_t)width * (uint64_t)height : 0;
}

VGPU_EXPORT CUresult cuLaunch(CUfunction function)
{
    LAUNCH_KIND(cuLaunch, function, 1, CU_STREAM_LEGACY, true, real.cuLaunch(function));
}

VGPU_EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    LAUNCH_KIND(cuLaunchGrid, function, blocks_of(width, height), CU_STREAM_LEGACY, true,
                real.cuLaunchGrid(function, width, height));
}

VGPU_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    LAUNCH_KIND(cuLaunchGridAsync, function, blocks_of(width, height), stream, true,
                real.cuLaunchGridAsync(function, width, height, stream));
}

/* CUDA_SUCCESS: call the driver. */
static CUresult parts_begin(struct launch *parts, const CUDA_LAUNCH_PARAMS *launches,
                            unsigned int count)
{
    for (unsigned int i = 0; i < count; i++) {
        CUresult result = CUDA_SUCCESS;
        if (local_functions_is_pending(launches[i].function))
            result =
                local_memory_begin(&parts[i].growth, launches[i].function, launches[i].hStream);
        if (result != CUDA_SUCCESS)
            return result;
    }
    bool has_begun = false;
    for (unsigned int i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *part = &launches[i];
        uint64_t blocks = (uint64_t)part->gridDimX * part->gridDimY * part->gridDimZ;
        if (blocks == 0)
            continue;
        parts[i].key = estimate_key(part->function, blocks);
        parts[i].stream = part->hStream;
        parts[i].is_collective = false;
        parts[i].has_begun = has_begun;
        if (!gate_enter(&parts[i]))
            return GATE_REFUSAL;
        has_begun = has_begun || launch_is_measured(&parts[i]);
    }
    return CUDA_SUCCESS;
}

VGPU_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches,
                                                          unsigned int count, unsigned int flags)
{
    if (gate_is_open())
        return real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    NEEDS(cuLaunchCooperativeKernelMultiDevice);
    if (launches == NULL || count > VGPU_MAX_DEVICES) /* each on a device of its own */
        return real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    struct launch parts[VGPU_MAX_DEVICES];
    for (unsigned int i = 0; i < count; i++)
        launch_start(&parts[i]);
    CUresult result = parts_begin(parts, launches, count);
    if (result == CUDA_SUCCESS)
        result = real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    /* Also of a launch that is refused, since batches are open. */
    for (unsigned int i = 0; i < count; i++)
        launch_end(&parts[i], result);
    return result;
}
