/* Memory, processes and utilisation, from the machine's books. */
#include <stdlib.h>
#include <time.h>

#include "nvml.h"

#define BAR1_BYTES (256ull << 20)
#define NS_PER_US 1000u

struct sim_device_books *nvml_read_books(nvmlDevice_t device)
{
    struct sim_device_books *books = malloc(sizeof *books);
    if (books && sim_machine_books(nvml.machine, device->machine_index, books) != 0) {
        free(books);
        books = NULL;
    }
    return books;
}

unsigned int nvml_busy_percent(const struct sim_device_books *books)
{
    return (unsigned int)(books->window_busy_ns * 100 / books->window_ns);
}

static uint64_t total_bytes(nvmlDevice_t device)
{
    return sim_machine_device(nvml.machine, device->machine_index)
        ->header->identity.profile.memory_bytes;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    NVML_CHECK(device, memory);
    struct sim_device_books *books = nvml_read_books(device);
    if (!books)
        return NVML_ERROR_MEMORY;
    memory->total = total_bytes(device);
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

/* ---- utilisation ----------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    NVML_CHECK(device, utilization);
    struct sim_device_books *books = nvml_read_books(device);
    if (!books)
        return NVML_ERROR_MEMORY;
    utilization->gpu = nvml_busy_percent(books);
    utilization->memory = utilization->gpu / 2; /* a guess: memory traffic is not modelled */
    free(books);
    return NVML_SUCCESS;
}

/* When the last whole window ended, on the wall clock as NVML counts. */
static unsigned long long window_end_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000u + (unsigned long long)now.tv_nsec / NS_PER_US;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since_us)
{
    NVML_CHECK(device, count);
    struct sim_device_books *books = nvml_read_books(device);
    if (!books)
        return NVML_ERROR_MEMORY;
    unsigned int room = samples ? *count : 0, found = 0;
    unsigned long long at_us = window_end_us();
    for (uint32_t i = 0; i < books->client_count && at_us > since_us; i++) {
        const struct sim_client_books *client = &books->clients[i];
        if (!client->alive || !client->window_busy_ns)
            continue;
        if (found < room)
            samples[found] = (nvmlProcessUtilizationSample_t){
                .pid = client->pid,
                .timeStamp = at_us,
                .smUtil = (unsigned int)(client->window_busy_ns * 100 / books->window_ns)};
        found++;
    }
    if (!samples)
        found = books->client_count; /* asked how many there may be */
    free(books);
    *count = found;
    if (!samples)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE
           : found      ? NVML_SUCCESS
                        : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info)
{
    NVML_CHECK(device, info);
    if (info->version != nvmlProcessesUtilizationInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlProcessUtilizationSample_t samples[SIM_PROCESS_SLOTS];
    unsigned int count = SIM_PROCESS_SLOTS;
    nvmlReturn_t result =
        nvmlDeviceGetProcessUtilization(device, samples, &count, info->lastSeenTimeStamp);
    if (result != NVML_SUCCESS) {
        info->processSamplesCount = 0;
        return result;
    }
    unsigned int room = info->procUtilArray ? info->processSamplesCount : 0;
    info->processSamplesCount = count;
    if (count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < count; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = samples[i].timeStamp, .pid = samples[i].pid, .smUtil = samples[i].smUtil};
    return NVML_SUCCESS;
}

static nvmlReturn_t no_engine(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us)
{
    NVML_CHECK(device, percent);
    NVML_CHECK(device, period_us);
    *percent = 0;
    *period_us = SIM_WINDOW_NS / NS_PER_US;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us)
{
    return no_engine(device, percent, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us)
{
    return no_engine(device, percent, period_us);
}
