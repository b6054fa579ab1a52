/* An NVML that lists a process of our number that is somebody else's, as one of another PID
 * namespace may be: it holds 1 GiB, whatever we do. */
#include <string.h>
#include <unistd.h>

#include "vgpu/nvml_api.h"

nvmlReturn_t nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    static char handle;
    (void)uuid;
    *device = (nvmlDevice_t)&handle;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *processes)
{
    (void)device;
    *count = 1;
    memset(processes, 0, sizeof *processes);
    processes->pid = (unsigned int)getpid();
    processes->usedGpuMemory = 1ull << 30;
    return NVML_SUCCESS;
}
