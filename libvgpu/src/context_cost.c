#include "context_cost.h"

#include <unistd.h>

#include "limits_file.h"
#include "real.h"
#include "region.h"

#define MOST_PROCESSES 256
#define BYTES_UNKNOWN ((unsigned long long)-1) /* NVML_VALUE_NOT_AVAILABLE */

uint64_t context_cost_estimate(uint32_t device)
{
    return limits_device(region_limits(), device)->context_bytes;
}

bool context_cost_own_bytes(uint32_t device, uint64_t *bytes)
{
    if (!real_load_nvml() || real.nvmlInit_v2 == NULL || real.nvmlShutdown == NULL ||
        real.nvmlDeviceGetHandleByUUID == NULL ||
        real.nvmlDeviceGetComputeRunningProcesses_v3 == NULL || real.nvmlInit_v2() != NVML_SUCCESS)
        return false;
    bool known = false;
    nvmlDevice_t handle;
    static __thread nvmlProcessInfo_t processes[MOST_PROCESSES];
    unsigned int count = MOST_PROCESSES;
    const char *uuid = limits_device(region_limits(), device)->uuid;
    if (real.nvmlDeviceGetHandleByUUID(uuid, &handle) == NVML_SUCCESS &&
        real.nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, processes) == NVML_SUCCESS)
        for (unsigned int i = 0; i < count && i < MOST_PROCESSES; i++)
            if (processes[i].pid == (unsigned int)getpid() &&
                processes[i].usedGpuMemory != BYTES_UNKNOWN) {
                *bytes = processes[i].usedGpuMemory;
                known = true;
            }
    real.nvmlShutdown();
    return known;
}
