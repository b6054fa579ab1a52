/* Memory and processes, from the machine's books. */
#include <stdlib.h>

#include "nvml.h"

#define BAR1_BYTES (256ull << 20)

struct sim_device_books *nvml_read_books(nvmlDevice_t device)
{
    struct sim_device_books *books = malloc(sizeof *books);
    if (books && sim_machine_books(nvml.machine, device->machine_index, books) != 0) {
        free(books);
        books = NULL;
    }
    return books;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    NVML_CHECK(device, memory);
    struct sim_device_books *books = nvml_read_books(device);
    if (!books)
        return NVML_ERROR_MEMORY;
    memory->total = nvml_profile_of(device)->memory_bytes;
    memory->used = books->memory_used_bytes;
    memory->free = memory->total - memory->used;
    free(books);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    NVML_CHECK(device, memory);
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result == NVML_SUCCESS) {
        memory->total = plain.total;
        memory->reserved = 0; /* memory_bytes of a profile is what is left for programs */
        memory->free = plain.free;
        memory->used = plain.used;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    NVML_CHECK(device, memory);
    *memory = (nvmlBAR1Memory_t){.bar1Total = BAR1_BYTES, .bar1Free = BAR1_BYTES};
    return NVML_SUCCESS;
}

/* ---- processes ------------------------------------------------------------------------------- */

static void put_process(void *infos, int version, unsigned int at,
                        const struct sim_client_books *client)
{
    if (version == 1)
        ((nvmlProcessInfo_v1_t *)infos)[at] =
            (nvmlProcessInfo_v1_t){.pid = client->pid, .usedGpuMemory = client->memory_bytes};
    else
        ((nvmlProcessInfo_v2_t *)infos)[at] =
            (nvmlProcessInfo_v2_t){.pid = client->pid,
                                   .usedGpuMemory = client->memory_bytes,
                                   .gpuInstanceId = 0xffffffffu,
                                   .computeInstanceId = 0xffffffffu};
}

/* The processes that hold something of the device; clients of MPS are in both lists, as in what
 * nvidia-smi shows as "M+C". */
static nvmlReturn_t list_processes(nvmlDevice_t device, bool only_mps, int version,
                                   unsigned int *count, void *infos)
{
    NVML_CHECK(device, count);
    struct sim_device_books *books = nvml_read_books(device);
    if (!books)
        return NVML_ERROR_MEMORY;
    unsigned int room = infos ? *count : 0, found = 0;
    for (uint32_t i = 0; i < books->client_count; i++) {
        const struct sim_client_books *client = &books->clients[i];
        if (!client->alive || !client->memory_bytes || (only_mps && !client->mps))
            continue;
        if (found < room)
            put_process(infos, version, found, client);
        found++;
    }
    free(books);
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    return list_processes(device, false, 1, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *infos)
{
    return list_processes(device, false, 2, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *infos)
{
    return list_processes(device, false, 3, count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v1_t *infos)
{
    return list_processes(device, true, 1, count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                        nvmlProcessInfo_v2_t *infos)
{
    return list_processes(device, true, 2, count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                        nvmlProcessInfo_t *infos)
{
    return list_processes(device, true, 3, count, infos);
}

static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count)
{
    NVML_CHECK(device, count);
    *count = 0; /* nothing draws on a simulated GPU */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                   nvmlProcessInfo_v1_t *infos)
{
    (void)infos;
    return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_v2_t *infos)
{
    (void)infos;
    return no_processes(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    (void)infos;
    return no_processes(device, count);
}
