/* Hooks of NVML's accounting: what the driver remembers of processes, the ended ones above all. It
 * holds every tenant's under host pids, and a slice remembers nobody who has ended: so, in a slice,
 * there is no accounting. */
#include "hooks/hook_nvml.h"

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t handle, unsigned int *count,
                                                     unsigned int *pids)
{
    NVML_NEEDS(nvmlDeviceGetAccountingPids);
    return region_open() == REGION_NONE ? real.nvmlDeviceGetAccountingPids(handle, count, pids)
                                        : NVML_ERROR_NOT_SUPPORTED;
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t handle, unsigned int pid,
                                                      nvmlAccountingStats_t *stats)
{
    NVML_NEEDS(nvmlDeviceGetAccountingStats);
    return region_open() == REGION_NONE ? real.nvmlDeviceGetAccountingStats(handle, pid, stats)
                                        : NVML_ERROR_NOT_SUPPORTED;
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t handle,
                                                         nvmlAccountingStats_v2_t *stats)
{
    NVML_NEEDS(nvmlDeviceGetAccountingStats_v2);
    return region_open() == REGION_NONE ? real.nvmlDeviceGetAccountingStats_v2(handle, stats)
                                        : NVML_ERROR_NOT_SUPPORTED;
}
