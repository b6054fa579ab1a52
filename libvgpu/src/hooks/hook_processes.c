/* Hooks of NVML's lists of processes: only the container's own, with the bytes that the ledger
 * charges them on that device. The driver's list has host pids and other tenants in it, so it is
 * asked only whether it would answer at all (for no room, which costs it no list). */
#include <string.h>

#include "driver/driver_processes.h"
#include "hooks/hook_nvml.h"
#include "slice/limits_file.h"
#include "slice/slot_processes.h"

#define NO_INSTANCE 0xffffffffu

/* Which MIG instance a handle stands for, as process lists say it. */
struct instance {
    unsigned int gpu;
    unsigned int compute;
};

static struct instance instance_of(nvmlDevice_t handle)
{
    struct instance found;
    if (real.nvmlDeviceGetGpuInstanceId != NULL && real.nvmlDeviceGetComputeInstanceId != NULL &&
        real.nvmlDeviceGetGpuInstanceId(handle, &found.gpu) == NVML_SUCCESS &&
        real.nvmlDeviceGetComputeInstanceId(handle, &found.compute) == NVML_SUCCESS)
        return found;
    return (struct instance){NO_INSTANCE, NO_INSTANCE};
}

/* Whether the processes of this slice are clients of MPS on the device. */
static bool is_mps(int device)
{
    return limits_is_mps_client(limits_device(region_limits(), (uint32_t)device));
}

enum which { COMPUTE, GRAPHICS, MPS };

/* Who is in such a list; `found` has room for VGPU_SLOT_COUNT. */
static unsigned int list(nvmlDevice_t handle, enum which which, struct process *found)
{
    int device = shown_device(handle);
    if (device < 0 || which == GRAPHICS || (which == MPS && !is_mps(device)))
        return 0;
    struct ledger ledger = region_ledger((uint32_t)device);
    return slot_processes_holding(&ledger, found);
}

/* Entries of version 1 end behind the memory; what longer ones have behind those of version 2 is memory that
 * confidential computing protects: none. */
static void put(void *infos, unsigned int index, size_t entry_bytes, const struct process *process,
                struct instance instance)
{
    char *entry = (char *)infos + index * entry_bytes;
    nvmlProcessInfo_v2_t info = {.pid = process->pid,
                                 .usedGpuMemory = process->bytes,
                                 .gpuInstanceId = instance.gpu,
                                 .computeInstanceId = instance.compute};
    memset(entry, 0, entry_bytes);
    memcpy(entry, &info, entry_bytes < sizeof info ? entry_bytes : sizeof info);
}

_Static_assert(offsetof(nvmlProcessInfo_v1_t, usedGpuMemory) ==
                   offsetof(nvmlProcessInfo_v2_t, usedGpuMemory),
               "an entry of version 1 begins one of version 2");

/* Programs know how long an entry is from the driver that they were made for, so that it is as long here as
 * the driver makes it. */
#define PROCESS_LIST(symbol, type, which, entry_bytes) \
    VGPU_EXPORT nvmlReturn_t symbol(nvmlDevice_t handle, unsigned int *count, type *infos) \
    { \
        struct process found[VGPU_SLOT_COUNT]; \
        NVML_NEEDS(symbol); \
        if (region_open() == REGION_NONE) \
            return real.symbol(handle, count, infos); \
        unsigned int room = infos != NULL ? OUTPUT(count) : 0; \
        unsigned int asked = infos != NULL ? 0 : OUTPUT(count); \
        nvmlReturn_t result = real.symbol(handle, count != NULL ? &asked : NULL, NULL); \
        if (!is_answerable(result) || count == NULL) \
            return result; \
        *count = list(handle, which, found); \
        size_t bytes = *count > 0 && room > 0 ? (entry_bytes) : 0; \
        for (unsigned int i = 0; i < *count && i < room; i++) \
            put(infos, i, bytes, &found[i], instance_of(handle)); \
        return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS; \
    }

#define PROCESS_LISTS(symbol, which) \
    PROCESS_LIST(symbol, nvmlProcessInfo_v1_t, which, sizeof(nvmlProcessInfo_v1_t)) \
    PROCESS_LIST(symbol##_v2, nvmlProcessInfo_v2_t, which, sizeof(nvmlProcessInfo_v2_t)) \
    PROCESS_LIST(symbol##_v3, nvmlProcessInfo_t, which, driver_processes_third_entry_bytes(handle))

PROCESS_LISTS(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
PROCESS_LISTS(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
PROCESS_LISTS(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

static enum which which_of(unsigned int mode)
{
    if (mode == NVML_PROCESS_MODE_GRAPHICS)
        return GRAPHICS;
    return mode == NVML_PROCESS_MODE_MPS ? MPS : COMPUTE; /* all of ours compute */
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle,
                                                               nvmlProcessDetailList_t *details)
{
    struct process found[VGPU_SLOT_COUNT];
    NVML_NEEDS(nvmlDeviceGetRunningProcessDetailList);
    if (region_open() == REGION_NONE || details == NULL)
        return real.nvmlDeviceGetRunningProcessDetailList(handle, details);
    nvmlProcessDetailList_t asked = {.version = details->version, .mode = details->mode};
    nvmlReturn_t result = real.nvmlDeviceGetRunningProcessDetailList(handle, &asked);
    if (!is_answerable(result))
        return result;
    unsigned int room = details->procArray != NULL ? details->numProcArrayEntries : 0;
    unsigned int count = list(handle, which_of(details->mode), found);
    struct instance instance = instance_of(handle);
    details->numProcArrayEntries = count;
    for (unsigned int i = 0; i < count && i < room; i++)
        details->procArray[i] = (nvmlProcessDetail_v1_t){.pid = found[i].pid,
                                                         .usedGpuMemory = found[i].bytes,
                                                         .gpuInstanceId = instance.gpu,
                                                         .computeInstanceId = instance.compute};
    return count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
