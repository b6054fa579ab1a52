/* Event sets. Nothing happens to a simulated GPU yet, so a wait ends with its time. */
#include <stdlib.h>
#include <time.h>

#include "nvml.h"

#define MAGIC_EVENT_SET 0x0073746e65766573ull
#define MS_PER_SECOND 1000
#define NS_PER_MS 1000000l

struct nvmlEventSet_st {
    uint64_t magic;
    unsigned int registrations;
};

static bool is_set(const struct nvmlEventSet_st *set)
{
    return set && set->magic == MAGIC_EVENT_SET;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    *set = calloc(1, sizeof **set);
    if (!*set)
        return NVML_ERROR_MEMORY;
    (*set)->magic = MAGIC_EVENT_SET;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set)
{
    unsigned long long supported;
    NVML_CHECK(device, set);
    if (!is_set(set))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlDeviceGetSupportedEventTypes(device, &supported);
    if (types & ~supported)
        return NVML_ERROR_NOT_SUPPORTED;
    set->registrations++;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!is_set(set) || !data)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct timespec wait = {.tv_sec = timeout_ms / MS_PER_SECOND,
                            .tv_nsec = (long)(timeout_ms % MS_PER_SECOND) * NS_PER_MS};
    while (nanosleep(&wait, &wait) != 0)
        ;
    return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    if (!is_set(set))
        return NVML_ERROR_INVALID_ARGUMENT;
    set->magic = 0;
    free(set);
    return NVML_SUCCESS;
}
