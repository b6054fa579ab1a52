/* MIG mode, and MIG devices: GPU instances with their compute instance, of which each has one. */
#include <errno.h>

#include "nvml.h"
#include "visible.h"

#define COMPUTE_INSTANCE 0

bool nvml_is_instance(nvmlDevice_t device)
{
    return device >= nvml.rooms && device < nvml.rooms + SIM_MAX_DEVICES &&
           device->machine_index >= sim_machine_gpu_count(nvml.machine) &&
           visible_on_machine(nvml.machine, device->machine_index);
}

unsigned int nvml_parts(nvmlDevice_t device, uint32_t parts[SIM_MAX_DEVICES])
{
    struct sim_mig_instance instances[SIM_MIG_SLOTS];
    unsigned int count = 0;
    parts[count++] = device->machine_index;
    if (!nvml_is_device(device))
        return count;
    uint32_t instance_count = sim_mig_instances(nvml.machine, device->machine_index, instances);
    for (uint32_t i = 0; i < instance_count; i++)
        if (instances[i].has_compute)
            parts[count++] = instances[i].device;
    return count;
}

bool nvml_is_cut(nvmlDevice_t device)
{
    return sim_mig_mode(nvml.machine, device->machine_index) == 1;
}

nvmlReturn_t nvml_mig_result(int error)
{
    switch (-error) {
    case 0:
        return NVML_SUCCESS;
    case ENOTSUP:
        return NVML_ERROR_NOT_SUPPORTED;
    case EBUSY:
        return NVML_ERROR_IN_USE;
    case ENOSPC:
    case EEXIST: /* it takes all of the GPU instance */
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case EINVAL:
    case ENOENT: /* gone since the handle was looked at */
        return NVML_ERROR_INVALID_ARGUMENT;
    default:
        return NVML_ERROR_UNKNOWN;
    }
}

const struct sim_mig_profile *nvml_mig_profile(uint32_t gpu, uint32_t profile)
{
    return &sim_machine_device(nvml.machine, gpu)->header->identity.mig_profiles[profile];
}

/* ---- the mode -------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending)
{
    NVML_CHECK(device, now);
    NVML_CHECK(device, pending);
    int mode = sim_mig_mode(nvml.machine, device->machine_index);
    *now = mode == 1;
    *pending = sim_mig_pending_mode(nvml.machine, device->machine_index) == 1;
    return mode < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* A GPU that is in use takes the mode at the next call that finds it idle. */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
    NVML_CHECK(device, activation);
    INVALID_IF(mode > NVML_DEVICE_MIG_ENABLE);
    REFUSE_IF(sim_mig_mode(nvml.machine, device->machine_index) < 0, NVML_ERROR_NOT_SUPPORTED);
    struct sim_machine *machine = nvml_open_to_change();
    REFUSE_IF(!machine, NVML_ERROR_UNKNOWN);
    *activation = nvml_mig_result(sim_mig_set_mode(machine, device->machine_index, mode));
    sim_machine_close(machine);
    return NVML_SUCCESS;
}

TELL(nvmlDeviceGetMaxMigDeviceCount, unsigned int,
     sim_mig_mode(nvml.machine, device->machine_index) < 0 ? 0 : SIM_MIG_SLOTS)

/* ---- MIG devices ----------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_instance)
{
    NVML_CHECK_ANY(device, is_instance);
    *is_instance = nvml_is_instance(device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *instance)
{
    struct sim_mig_instance instances[SIM_MIG_SLOTS];
    NVML_CHECK(device, instance);
    uint32_t count = sim_mig_instances(nvml.machine, device->machine_index, instances);
    for (uint32_t i = 0; i < count; i++)
        if (nvml_is_instance(&nvml.rooms[instances[i].device]) && index-- == 0) {
            *instance = &nvml.rooms[instances[i].device];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlDevice_t nvml_device_at(uint32_t gpu)
{
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (nvml.devices[i].machine_index == gpu)
            return &nvml.devices[i];
    return NULL;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance,
                                                          nvmlDevice_t *device)
{
    NVML_CHECK_ANY(instance, device);
    INVALID_IF(!nvml_is_instance(instance));
    *device = nvml_device_at(nvml_identity_of(instance)->gpu - 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    NVML_CHECK_ANY(device, id);
    *id = nvml_identity_of(device)->instance;
    return nvml_is_instance(device) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    NVML_CHECK_ANY(device, id);
    *id = COMPUTE_INSTANCE;
    return nvml_is_instance(device) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    struct sim_mig_instance instances[SIM_MIG_SLOTS];
    NVML_CHECK_ANY(device, attributes);
    REFUSE_IF(!nvml_is_instance(device), NVML_ERROR_NOT_SUPPORTED);
    uint32_t gpu = nvml_identity_of(device)->gpu - 1;
    uint32_t count = sim_mig_instances(nvml.machine, gpu, instances);
    for (uint32_t i = 0; i < count; i++) {
        if (instances[i].device != device->machine_index)
            continue;
        const struct sim_mig_profile *profile = nvml_mig_profile(gpu, instances[i].profile);
        *attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = profile->sm_count,
                                               .sharedCopyEngineCount = profile->copy_engines,
                                               .sharedDecoderCount = profile->decoders,
                                               .sharedEncoderCount = profile->encoders,
                                               .sharedJpegCount = profile->jpeg_engines,
                                               .sharedOfaCount = profile->optical_flow_engines,
                                               .gpuInstanceSliceCount = profile->slices,
                                               .computeInstanceSliceCount = profile->slices,
                                               .memorySizeMB = profile->memory_mib};
        return NVML_SUCCESS;
    }
    return NVML_ERROR_INVALID_ARGUMENT; /* destroyed since it was checked */
}

SAME_AS(nvmlDeviceGetAttributes, nvmlDeviceGetAttributes_v2);
