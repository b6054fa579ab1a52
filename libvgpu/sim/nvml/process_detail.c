/* The newest list of processes, of every kind in one call, from the machine's books. */
#include <stdlib.h>

#include "nvml.h"
#include "visible_pid.h"

#define NO_INSTANCE 0xffffffffu

static bool is_listed(const struct sim_client_books *client, unsigned int mode)
{
    if (!client->alive || !client->memory_bytes || mode == NVML_PROCESS_MODE_GRAPHICS)
        return false; /* nothing draws on a simulated GPU */
    return mode != NVML_PROCESS_MODE_MPS || client->mps;
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *list)
{
    NVML_CHECK(device, list);
    INVALID_IF(list->version != nvmlProcessDetailList_v1 || list->mode > NVML_PROCESS_MODE_ALL);
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    unsigned int room = list->procArray ? list->numProcArrayEntries : 0, found = 0;
    for (uint32_t i = 0; i < books->client_count; i++) {
        const struct sim_client_books *client = &books->clients[i];
        uint32_t pid;
        if (!is_listed(client, list->mode) || !nvml_visible_pid(client, &pid))
            continue;
        if (found < room)
            list->procArray[found] = (nvmlProcessDetail_v1_t){.pid = pid,
                                                              .usedGpuMemory = client->memory_bytes,
                                                              .gpuInstanceId = NO_INSTANCE,
                                                              .computeInstanceId = NO_INSTANCE};
        found++;
    }
    free(books);
    list->numProcArrayEntries = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
