/* Memory and processes, from the machine's books. */
#include <stdlib.h>
#include <string.h>

#include "nvml.h"
#include "visible_pid.h"

#define BAR1_BYTES (256ull << 20)

struct sim_device_books *nvml_read_books_at(uint32_t machine_index)
{
    struct sim_device_books *books = malloc(sizeof *books);
    if (books && sim_machine_books(nvml.machine, machine_index, books) != 0) {
        free(books);
        books = NULL;
    }
    return books;
}

struct sim_device_books *nvml_read_books(nvmlDevice_t device)
{
    return nvml_read_books_at(device->machine_index);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    uint32_t parts[SIM_MAX_DEVICES];
    NVML_CHECK_ANY(device, memory);
    NVML_TAKES(device, nvmlDeviceGetMemoryInfo);
    unsigned int part_count = nvml_parts(device, parts);
    uint64_t used_bytes = 0;
    for (unsigned int i = 0; i < part_count; i++) {
        struct sim_device_books *books = nvml_read_books_at(parts[i]);
        REFUSE_IF(!books, NVML_ERROR_MEMORY);
        used_bytes += books->memory_used_bytes;
        free(books);
    }
    memory->total = nvml_profile_of(device)->memory_bytes;
    memory->used = used_bytes;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    NVML_CHECK_ANY(device, memory);
    REFUSE_IF(memory->version != nvmlMemory_v2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
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

#define NO_INSTANCE 0xffffffffu

/* What a call asks for, and how much of that was found. */
struct process_list {
    bool only_mps;
    size_t entry_bytes;
    unsigned int room, found;
    char *infos;
};

static size_t entry_bytes_of(int version)
{
    if (version == 1)
        return sizeof(nvmlProcessInfo_v1_t);
    return version == 2 ? sizeof(nvmlProcessInfo_v2_t)
                        : sim_machine_release(nvml.machine)->process_entry_bytes;
}

/* `device`: what it is on, which may be a MIG instance. Entries of version 1 end behind the memory; what
 * longer ones have behind those of version 2 is memory that confidential computing protects: none. */
static void put_process(struct process_list *list, uint32_t pid,
                        const struct sim_client_books *client,
                        const struct sim_device_identity *device)
{
    char *entry = list->infos + list->found * list->entry_bytes;
    nvmlProcessInfo_v2_t info = {.pid = pid,
                                 .usedGpuMemory = client->memory_bytes,
                                 .gpuInstanceId = device->gpu ? device->instance : NO_INSTANCE,
                                 .computeInstanceId = device->gpu ? 0 : NO_INSTANCE};
    memset(entry, 0, list->entry_bytes);
    memcpy(entry, &info, list->entry_bytes < sizeof info ? list->entry_bytes : sizeof info);
}

static nvmlReturn_t list_part(struct process_list *list, uint32_t machine_index)
{
    struct sim_device_books *books = nvml_read_books_at(machine_index);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    const struct sim_device_identity *device =
        &sim_machine_device(nvml.machine, machine_index)->header->identity;
    for (uint32_t i = 0; i < books->client_count; i++) {
        const struct sim_client_books *client = &books->clients[i];
        uint32_t pid;
        if (!client->alive || !client->memory_bytes || (list->only_mps && !client->mps) ||
            !nvml_visible_pid(client, &pid))
            continue;
        if (list->found < list->room)
            put_process(list, pid, client, device);
        list->found++;
    }
    free(books);
    return NVML_SUCCESS;
}

/* The processes that hold something of the device, or of its instances; clients of MPS are in both
 * lists, as in what nvidia-smi shows as "M+C". */
static nvmlReturn_t list_processes(nvmlDevice_t device, bool only_mps, int version,
                                   unsigned int *count, void *infos)
{
    uint32_t parts[SIM_MAX_DEVICES];
    NVML_CHECK_ANY_AS(device, count,
                      only_mps ? "nvmlDeviceGetMPSComputeRunningProcesses"
                               : "nvmlDeviceGetComputeRunningProcesses");
    INVALID_IF(!infos &&
               *count); /* as documented: without a list only how many there are can be asked */
    NVML_TAKES(device, nvmlDeviceGetComputeRunningProcesses);
    struct process_list list = {.only_mps = only_mps,
                                .entry_bytes = entry_bytes_of(version),
                                .room = infos ? *count : 0,
                                .infos = infos};
    unsigned int part_count = nvml_parts(device, parts);
    nvmlReturn_t result = NVML_SUCCESS;
    for (unsigned int i = 0; i < part_count && result == NVML_SUCCESS; i++)
        result = list_part(&list, parts[i]);
    if (result != NVML_SUCCESS)
        return result;
    *count = list.found;
    return list.found > list.room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
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

static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count, const void *infos)
{
    NVML_CHECK_ANY_AS(device, count, "nvmlDeviceGetGraphicsRunningProcesses");
    INVALID_IF(!infos && *count);
    *count = 0; /* nothing draws on a simulated GPU */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                   nvmlProcessInfo_v1_t *infos)
{
    return no_processes(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_v2_t *infos)
{
    return no_processes(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                      nvmlProcessInfo_t *infos)
{
    return no_processes(device, count, infos);
}
