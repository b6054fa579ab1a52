/* Which devices there are, and handles to them. A handle is the address of an entry of
 * nvml.devices, or of nvml.rooms for a MIG device, the same as long as the library is initialised. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "nvml.h"

/* So often a call that hangs looks whether it still does. */
#define HANGS_LOOK_NS 2000000

bool nvml_is_device(nvmlDevice_t device)
{
    return device >= nvml.devices && device < nvml.devices + nvml.device_count;
}

static bool read_faults(nvmlDevice_t device, struct sim_device_faults *faults)
{
    uint32_t gpu = nvml_identity_of(device)->gpu; /* of an instance */
    return sim_machine_faulty(nvml.machine) &&
           sim_machine_read_device_faults(nvml.machine, gpu ? gpu - 1 : device->machine_index,
                                          faults) == 0;
}

bool nvml_is_lost(nvmlDevice_t device)
{
    struct sim_device_faults faults;
    return read_faults(device, &faults) && faults.lost;
}

static int32_t answer_of(nvmlDevice_t device, const char *function)
{
    struct sim_device_faults faults;
    if (!read_faults(device, &faults))
        return NVML_SUCCESS;
    for (int i = 0; i < SIM_NVML_FAULTS; i++) {
        const struct sim_nvml_fault *fault = &faults.nvml[i];
        size_t length = strnlen(fault->function, sizeof fault->function);
        if (length && (fault->function[0] == '*' || !strncmp(function, fault->function, length)))
            return fault->answer;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_fault(nvmlDevice_t device, const char *function)
{
    const struct timespec pause = {.tv_nsec = HANGS_LOOK_NS};
    int32_t answer;
    while ((answer = answer_of(device, function)) == SIM_NVML_HANGS)
        nanosleep(&pause, NULL);
    return (nvmlReturn_t)answer;
}

nvmlReturn_t nvml_check(nvmlDevice_t device, const void *result, const char *function)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    REFUSE_IF(nvml_is_instance(device), NVML_ERROR_NOT_SUPPORTED);
    INVALID_IF(!nvml_is_device(device) || !result);
    nvmlReturn_t fault = nvml_fault(device, function);
    return nvml_is_lost(device) ? NVML_ERROR_GPU_IS_LOST : fault;
}

nvmlReturn_t nvml_check_any(nvmlDevice_t device, const void *result, const char *function)
{
    if (!nvml_is_started() || !nvml_is_instance(device))
        return nvml_check(device, result, function);
    INVALID_IF(!result);
    nvmlReturn_t fault = nvml_fault(device, function);
    return nvml_is_lost(device) ? NVML_ERROR_GPU_IS_LOST : fault;
}

const struct sim_device_identity *nvml_identity_of(nvmlDevice_t device)
{
    return &sim_machine_device(nvml.machine, device->machine_index)->header->identity;
}

const struct sim_profile *nvml_profile_of(nvmlDevice_t device)
{
    return &nvml_identity_of(device)->profile;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(!count);
    *count = nvml.device_count;
    return NVML_SUCCESS;
}

SAME_AS(nvmlDeviceGetCount, nvmlDeviceGetCount_v2);

typedef bool (*match_function)(const struct sim_device_identity *identity, const void *wanted);

/* The first GPU that matches. A device that is lost is there, but cannot be had. */
static nvmlReturn_t find_device(match_function matches, const void *wanted, nvmlDevice_t *device,
                                const char *function)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(!wanted || !device);
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (matches(nvml_identity_of(&nvml.devices[i]), wanted)) {
            nvmlReturn_t checked = nvml_check(&nvml.devices[i], device, function);
            if (checked != NVML_SUCCESS)
                return checked;
            *device = &nvml.devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

static bool has_uuid(const struct sim_device_identity *identity, const void *wanted)
{
    return strcmp(identity->uuid, wanted) == 0;
}

static bool has_serial(const struct sim_device_identity *identity, const void *wanted)
{
    return strcmp(identity->serial, wanted) == 0;
}

static bool is_on_bus(const struct sim_device_identity *identity, const void *wanted)
{
    return identity->pci_bus == *(const unsigned int *)wanted;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(index >= nvml.device_count);
    NVML_CHECK(&nvml.devices[index], device);
    *device = &nvml.devices[index];
    return NVML_SUCCESS;
}

SAME_AS(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2);

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t result = find_device(has_uuid, uuid, device, __func__);
    if (result != NVML_ERROR_NOT_FOUND)
        return result;
    for (uint32_t i = 0; i < sim_machine_device_count(nvml.machine); i++)
        if (nvml_is_instance(&nvml.rooms[i]) && has_uuid(nvml_identity_of(&nvml.rooms[i]), uuid)) {
            NVML_CHECK_ANY(&nvml.rooms[i], device);
            *device = &nvml.rooms[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    return find_device(has_serial, serial, device, __func__);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
    unsigned int domain = 0, bus = 0, slot = 0, function = 0;
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(!id || !device);
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    return domain || slot || function ? NVML_ERROR_NOT_FOUND
                                      : find_device(is_on_bus, &bus, device, __func__);
}

SAME_AS(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2);
