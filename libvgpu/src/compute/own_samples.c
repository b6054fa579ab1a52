#include "compute/own_samples.h"

#include "hooks/real.h"

static bool has_pid(const struct process *own, uint32_t own_count, unsigned int pid)
{
    for (uint32_t i = 0; i < own_count; i++)
        if (own[i].pid == pid)
            return true;
    return false;
}

/* Its arrays are large: kept out of the caller's frame. */
static __attribute__((noinline)) bool knows_our_pids(nvmlDevice_t handle, const struct process *own,
                                                     uint32_t own_count)
{
    nvmlProcessInfo_t infos[OWN_SAMPLES_MOST];
    unsigned int count = OWN_SAMPLES_MOST;
    if (real.nvmlDeviceGetComputeRunningProcesses_v3 == NULL ||
        real.nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, infos) != NVML_SUCCESS)
        return false;
    for (unsigned int i = 0; i < count && i < OWN_SAMPLES_MOST; i++)
        if (has_pid(own, own_count, infos[i].pid))
            return true;
    return false;
}

bool own_samples(nvmlDevice_t handle, const struct process *own, uint32_t own_count,
                 unsigned long long since_us, nvmlProcessUtilizationSample_t *samples,
                 unsigned int *count)
{
    unsigned int room = OWN_SAMPLES_MOST;
    *count = 0;
    if (real.nvmlDeviceGetProcessUtilization == NULL || !knows_our_pids(handle, own, own_count))
        return false;
    nvmlReturn_t result = real.nvmlDeviceGetProcessUtilization(handle, samples, &room, since_us);
    if (result == NVML_ERROR_NOT_FOUND)
        return true; /* nobody worked */
    if (result != NVML_SUCCESS)
        return false;
    for (unsigned int i = 0; i < room && i < OWN_SAMPLES_MOST; i++)
        if (has_pid(own, own_count, samples[i].pid))
            samples[(*count)++] = samples[i];
    return true;
}
