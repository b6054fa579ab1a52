/* MIG: GPUs that are cut into instances, when the machine was made. Each instance is one GPU
 * instance, numbered from 1, with a single compute instance in it. */
#include "nvml.h"

#define MOST_INSTANCES 7
#define FIRST_COMPUTE_INSTANCE 0

static bool is_capable(nvmlDevice_t device)
{
    const struct sim_profile *profile = nvml_profile_of(device);
    return profile->compute_major >= 8 && profile->compute_minor == 0;
}

bool nvml_is_instance(nvmlDevice_t device)
{
    return device >= nvml.devices + nvml.device_count &&
           device < nvml.devices + nvml.device_count + nvml.instance_count;
}

static bool is_part(uint32_t index, nvmlDevice_t device)
{
    const struct sim_device *part = sim_machine_device(nvml.machine, index);
    return part->header->identity.gpu == device->machine_index + 1;
}

unsigned int nvml_parts(nvmlDevice_t device, uint32_t parts[SIM_MAX_DEVICES])
{
    unsigned int count = 0;
    parts[count++] = device->machine_index;
    for (uint32_t i = 0; i < sim_machine_device_count(nvml.machine); i++)
        if (is_part(i, device))
            parts[count++] = i;
    return count;
}

bool nvml_is_cut(nvmlDevice_t device)
{
    uint32_t parts[SIM_MAX_DEVICES];
    return nvml_parts(device, parts) > 1;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending)
{
    NVML_CHECK(device, now);
    NVML_CHECK(device, pending);
    *now = *pending = nvml_is_cut(device);
    return is_capable(device) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    NVML_CHECK(device, count);
    *count = is_capable(device) ? MOST_INSTANCES : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_instance)
{
    NVML_CHECK_ANY(device, is_instance);
    *is_instance = nvml_is_instance(device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *instance)
{
    NVML_CHECK(device, instance);
    for (uint32_t i = nvml.device_count; i < nvml.device_count + nvml.instance_count; i++)
        if (is_part(nvml.devices[i].machine_index, device) && index-- == 0) {
            *instance = &nvml.devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance,
                                                          nvmlDevice_t *device)
{
    NVML_CHECK_ANY(instance, device);
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (is_part(instance->machine_index, &nvml.devices[i])) {
            *device = &nvml.devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_INVALID_ARGUMENT; /* of a whole GPU */
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *number)
{
    NVML_CHECK_ANY(device, number);
    *number = nvml_identity_of(device)->instance;
    return nvml_is_instance(device) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *number)
{
    NVML_CHECK_ANY(device, number);
    *number = FIRST_COMPUTE_INSTANCE;
    return nvml_is_instance(device) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
