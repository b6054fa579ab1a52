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
    LAUNCH(launch_begin(&real.cuLaunch, function, 1, CU_STREAM_LEGACY, true),
           real.cuLaunch(function));
}

VGPU_EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    LAUNCH(launch_begin(&real.cuLaunchGrid, function, blocks_of(width, height), CU_STREAM_LEGACY,
                        true),
           real.cuLaunchGrid(function, width, height));
}

VGPU_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    LAUNCH(launch_begin(&real.cuLaunchGridAsync, function, blocks_of(width, height), stream, true),
           real.cuLaunchGridAsync(function, width, height, stream));
}

VGPU_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches,
                                                          unsigned int count, unsigned int flags)
{
    if (gate_is_open())
        return real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    NEEDS(cuLaunchCooperativeKernelMultiDevice);
    if (launches == NULL || count > VGPU_MAX_DEVICES) /* each on a device of its own */
        return real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    uint32_t measured[VGPU_MAX_DEVICES];
    uint32_t measured_count = 0;
    struct local_growth growths[VGPU_MAX_DEVICES];
    unsigned int grown_count = 0;
    CUresult refusal = CUDA_SUCCESS;
    for (unsigned int i = 0; i < count && refusal == CUDA_SUCCESS; i++)
        if (local_functions_is_pending(launches[i].function))
            refusal = local_memory_begin(&growths[grown_count++], launches[i].function,
                                         launches[i].hStream);
    enum gate_answer answer = GATE_PASS;
    for (unsigned int i = 0; i < count && answer != GATE_REFUSE && refusal == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *part = &launches[i];
        uint64_t blocks = (uint64_t)part->gridDimX * part->gridDimY * part->gridDimZ;
        if (blocks == 0)
            continue;
        answer = gate_enter(part->function, blocks, part->hStream, measured_count > 0,
                            &measured[measured_count]);
        if (answer == GATE_MEASURE)
            measured_count++;
    }
    CUresult result = refusal != CUDA_SUCCESS ? refusal
                      : answer == GATE_REFUSE
                          ? launch_refused()
                          : real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    while (measured_count > 0) /* also of a launch that is refused: their batches are open */
        throttle_after(measured[--measured_count]);
    while (grown_count > 0)
        local_memory_end(&growths[--grown_count], result);
    return result;
}
