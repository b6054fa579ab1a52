/*
 * Event sets. The machine numbers the events of each device and keeps the last ones
 * (core/events.c); a set remembers how far it has read each device it was registered for, and since
 * which event it wants each type. So a set takes nothing from another one, and costs nothing while
 * nobody waits.
 *
 * The mutex of a set keeps threads that wait on it apart while they look; it is never held while
 * they sleep. Each event is given to one of them.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "nvml.h"

#define MAGIC_EVENT_SET 0x0073746e65766573ull
#define NS_PER_MS 1000000ull
#define NO_INSTANCE 0xffffffffu /* of MIG */
#define KINDS 3
#define NOT_WANTED UINT64_MAX

/* The kinds of event that the machine raises, SIM_EVENT_XID + i being NVML's types[i]. */
static const unsigned long long types[KINDS] = {
    nvmlEventTypeXidCriticalError,
    nvmlEventTypeSingleBitEccError,
    nvmlEventTypeDoubleBitEccError,
};
#define SUPPORTED_TYPES \
    (nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | \
     nvmlEventTypeDoubleBitEccError)

struct registration {
    bool registered;
    uint64_t read;                /* number of the last event that was looked at */
    uint64_t wanted_after[KINDS]; /* number of the last event before each kind was asked for */
};

struct nvmlEventSet_st {
    uint64_t magic;
    pthread_mutex_t mutex;
    struct registration registrations[SIM_MAX_GPUS]; /* by index among the visible ones */
};

static nvmlReturn_t check_set(const struct nvmlEventSet_st *set)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    return set && set->magic == MAGIC_EVENT_SET ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(!set);
    *set = calloc(1, sizeof **set);
    REFUSE_IF(!*set, NVML_ERROR_MEMORY);
    (*set)->magic = MAGIC_EVENT_SET;
    pthread_mutex_init(&(*set)->mutex, NULL);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    CHECK(check_set(set));
    set->magic = 0;
    pthread_mutex_destroy(&set->mutex);
    free(set);
    return NVML_SUCCESS;
}

TELL(nvmlDeviceGetSupportedEventTypes, unsigned long long, SUPPORTED_TYPES)

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long wanted,
                                      nvmlEventSet_t set)
{
    NVML_CHECK(device, set);
    CHECK(check_set(set));
    REFUSE_IF(wanted & ~(unsigned long long)SUPPORTED_TYPES, NVML_ERROR_NOT_SUPPORTED);
    pthread_mutex_lock(&set->mutex);
    struct registration *registration = &set->registrations[device->index];
    uint64_t last = sim_machine_last_event(nvml.machine, device->machine_index);
    if (!registration->registered) {
        registration->registered = true;
        registration->read = last;
        for (int kind = 0; kind < KINDS; kind++)
            registration->wanted_after[kind] = NOT_WANTED;
    }
    for (int kind = 0; kind < KINDS; kind++)
        if (wanted & types[kind] && registration->wanted_after[kind] == NOT_WANTED)
            registration->wanted_after[kind] = last;
    pthread_mutex_unlock(&set->mutex);
    return NVML_SUCCESS;
}

/* Takes the next event of a device that is wanted, if there is one. */
static bool take_event(struct registration *registration, nvmlDevice_t device,
                       nvmlEventData_t *data)
{
    struct sim_event event;
    uint64_t last = sim_machine_last_event(nvml.machine, device->machine_index);
    if (last > SIM_EVENTS_KEPT && registration->read < last - SIM_EVENTS_KEPT)
        registration->read = last - SIM_EVENTS_KEPT; /* those before are lost */
    while (registration->read < last) {
        uint64_t number = registration->read + 1;
        if (sim_machine_read_event(nvml.machine, device->machine_index, number, &event) != 0)
            return false; /* being written: its writer wakes us */
        registration->read = number;
        uint32_t kind = event.type - SIM_EVENT_XID;
        if (kind >= KINDS || number <= registration->wanted_after[kind] ||
            registration->wanted_after[kind] == NOT_WANTED)
            continue;
        *data = (nvmlEventData_t){.device = device,
                                  .eventType = types[kind],
                                  .eventData = event.type == SIM_EVENT_XID ? event.data : 0,
                                  .gpuInstanceId = NO_INSTANCE,
                                  .computeInstanceId = NO_INSTANCE};
        return true;
    }
    return false;
}

/* What a wait answers now: an event of any device, NVML_ERROR_GPU_IS_LOST once a lost GPU has no
 * more of them, or NVML_ERROR_TIMEOUT. */
static nvmlReturn_t look(nvmlEventSet_t set, nvmlEventData_t *data)
{
    nvmlReturn_t result = NVML_ERROR_TIMEOUT;
    pthread_mutex_lock(&set->mutex);
    for (uint32_t i = 0; i < nvml.device_count && result != NVML_SUCCESS; i++) {
        if (!set->registrations[i].registered)
            continue;
        if (take_event(&set->registrations[i], &nvml.devices[i], data))
            result = NVML_SUCCESS;
        else if (nvml_is_lost(&nvml.devices[i]))
            result = NVML_ERROR_GPU_IS_LOST;
    }
    pthread_mutex_unlock(&set->mutex);
    return result;
}

/* What a wait answers by a fault on request of a GPU that the set was registered for. */
static nvmlReturn_t fault_of_wait(nvmlEventSet_t set)
{
    nvmlReturn_t result = NVML_SUCCESS;
    for (uint32_t i = 0; i < nvml.device_count && result == NVML_SUCCESS; i++)
        if (set->registrations[i].registered)
            result = nvml_fault(&nvml.devices[i], "nvmlEventSetWait");
    return result;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    nvmlReturn_t result = check_set(set);
    if (result != NVML_SUCCESS || !data)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    uint64_t deadline_ns = sim_now_ns() + timeout_ms * NS_PER_MS;
    for (;;) {
        CHECK(fault_of_wait(set));
        /* The count is read before looking, so that what is raised in between ends the sleep. */
        uint32_t seen = sim_machine_wait_event(nvml.machine, 0, 0);
        result = look(set, data);
        uint64_t now_ns = sim_now_ns();
        if (result != NVML_ERROR_TIMEOUT || now_ns >= deadline_ns)
            return result;
        sim_machine_wait_event(nvml.machine, seen, deadline_ns - now_ns);
    }
}

/* The first version, whose structure ends with the event's data. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    nvmlEventData_t whole;
    CHECK(nvmlEventSetWait_v2(set, data ? &whole : NULL, timeout_ms));
    memcpy(data, &whole, offsetof(nvmlEventData_t, gpuInstanceId));
    return NVML_SUCCESS;
}
