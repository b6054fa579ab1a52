/* Hooks of NVML's accounting: what the driver remembers of processes, the ended ones above all. It
 * holds every tenant's under host pids, and a slice remembers nobody who has ended: so, in a slice,
 * there is no accounting. */
#include "hooks/hook_nvml.h"

#define NOT_IN_A_SLICE(symbol, call) \
    do { \
        NEED_NVML(symbol); \
        return region_open() == REGION_NONE ? (call) : NVML_ERROR_NOT_SUPPORTED; \
    } while (0)

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t handle, unsigned int *count,
                                                     unsigned int *pids)
{
    NOT_IN_A_SLICE(nvmlDeviceGetAccountingPids,
                   real.nvmlDeviceGetAccountingPids(handle, count, pids));
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t handle, unsigned int pid,
                                                      nvmlAccountingStats_t *stats)
{
    NOT_IN_A_SLICE(nvmlDeviceGetAccountingStats,
                   real.nvmlDeviceGetAccountingStats(handle, pid, stats));
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t handle,
                                                         nvmlAccountingStats_v2_t *stats)
{
    NOT_IN_A_SLICE(nvmlDeviceGetAccountingStats_v2,
                   real.nvmlDeviceGetAccountingStats_v2(handle, stats));
}
