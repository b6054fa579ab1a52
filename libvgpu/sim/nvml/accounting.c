/* What the driver remembers of processes, where the machine's administrator has switched accounting
 * on (VGPU_SIM_ACCOUNTING is set): those in the books, the dead among them until their place is
 * taken again. */
#include <stdlib.h>

#include "nvml.h"
#include "visible_pid.h"

#define NS_PER_MS 1000000u
#define WHOLE_PERCENT 100

TELL(nvmlDeviceGetAccountingMode, nvmlEnableState_t,
     getenv("VGPU_SIM_ACCOUNTING") ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED)

static nvmlReturn_t check(nvmlDevice_t device, const void *result)
{
    nvmlEnableState_t mode;
    NVML_CHECK(device, result);
    CHECK(nvmlDeviceGetAccountingMode(device, &mode));
    return mode == NVML_FEATURE_ENABLED ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                         unsigned int *pids)
{
    CHECK(check(device, count));
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    unsigned int room = pids ? *count : 0;
    for (uint32_t i = 0; i < books->client_count && i < room; i++)
        nvml_visible_pid(&books->clients[i], &pids[i]); /* the dead are remembered, too */
    *count = books->client_count;
    free(books);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)
{
    CHECK(check(device, stats));
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    nvmlReturn_t result = NVML_ERROR_NOT_FOUND;
    for (uint32_t i = 0; i < books->client_count && result != NVML_SUCCESS; i++) {
        const struct sim_client_books *client = &books->clients[i];
        uint32_t pid;
        nvml_visible_pid(client, &pid);
        if (pid != stats->pid)
            continue;
        *stats = (nvmlAccountingStats_v2_t){
            .pid = stats->pid,
            .isRunning = client->alive,
            .gpuUtilization =
                (unsigned int)(client->window_busy_ns * WHOLE_PERCENT / books->window_ns),
            .maxMemoryUsage = client->memory_bytes,
            .time = client->alive ? 0 : client->busy_ns / NS_PER_MS};
        result = NVML_SUCCESS;
    }
    free(books);
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats)
{
    nvmlAccountingStats_v2_t all = {.pid = pid};
    NVML_CHECK(device, stats);
    CHECK(nvmlDeviceGetAccountingStats_v2(device, &all));
    *stats = (nvmlAccountingStats_t){.gpuUtilization = all.gpuUtilization,
                                     .maxMemoryUsage = all.maxMemoryUsage,
                                     .time = all.time,
                                     .isRunning = all.isRunning};
    return NVML_SUCCESS;
}
