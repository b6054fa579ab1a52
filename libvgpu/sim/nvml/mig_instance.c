/* GPU instances: which there are, and making and ending them. A handle is the address of an entry of
 * nvml.gpu_instances, which stands for whatever is in that room. */
#include "nvml.h"

nvmlReturn_t nvml_check_gpu_instance(nvmlGpuInstance_t instance, const void *result, uint32_t *gpu,
                                     struct sim_mig_instance *found)
{
    struct sim_mig_instance instances[SIM_MIG_SLOTS];
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(!result || instance < nvml.gpu_instances ||
               instance >= nvml.gpu_instances + sim_machine_device_count(nvml.machine) ||
               instance->room < sim_machine_gpu_count(nvml.machine));
    *gpu = sim_machine_device(nvml.machine, instance->room)->header->identity.gpu - 1;
    INVALID_IF(!nvml_device_at(*gpu));
    REFUSE_IF(nvml_is_lost(nvml_device_at(*gpu)), NVML_ERROR_GPU_IS_LOST);
    uint32_t count = sim_mig_instances(nvml.machine, *gpu, instances);
    for (uint32_t i = 0; i < count; i++)
        if (instances[i].device == instance->room) {
            *found = instances[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned int profile_id,
                           const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *instance)
{
    struct sim_mig_instance instances[SIM_MIG_SLOTS];
    uint32_t profile, gpu = device->machine_index;
    REFUSE_IF(!nvml_is_cut(device), NVML_ERROR_NOT_SUPPORTED);
    CHECK(nvml_find_profile_id(device, profile_id, &profile));
    INVALID_IF(placement && (placement->size != nvml_mig_profile(gpu, profile)->size ||
                             placement->start >= SIM_MIG_SLICES));
    struct sim_machine *machine = nvml_open_to_change();
    REFUSE_IF(!machine, NVML_ERROR_UNKNOWN);
    int slot = sim_mig_create(machine, gpu, profile, placement ? (int32_t)placement->start : -1);
    sim_machine_close(machine);
    if (slot < 0)
        return nvml_mig_result(slot);
    uint32_t count = sim_mig_instances(nvml.machine, gpu, instances);
    for (uint32_t i = 0; i < count; i++)
        if (instances[i].slot == (uint32_t)slot) {
            *instance = &nvml.gpu_instances[instances[i].device];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_UNKNOWN; /* somebody else has destroyed it */
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile_id,
                                         nvmlGpuInstance_t *instance)
{
    NVML_CHECK(device, instance);
    return create(device, profile_id, NULL, instance);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile_id,
                                                      const nvmlGpuInstancePlacement_t *placement,
                                                      nvmlGpuInstance_t *instance)
{
    NVML_CHECK(device, instance);
    NVML_CHECK(device, placement);
    return create(device, profile_id, placement, instance);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    struct sim_mig_instance found;
    uint32_t gpu;
    CHECK(nvml_check_gpu_instance(instance, instance, &gpu, &found));
    struct sim_machine *machine = nvml_open_to_change();
    REFUSE_IF(!machine, NVML_ERROR_UNKNOWN);
    int error = sim_mig_destroy(machine, gpu, found.slot);
    sim_machine_close(machine);
    return nvml_mig_result(error);
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile_id,
                                       nvmlGpuInstance_t *instances, unsigned int *count)
{
    struct sim_mig_instance found[SIM_MIG_SLOTS];
    uint32_t profile;
    NVML_CHECK(device, count);
    NVML_CHECK(device, instances);
    CHECK(nvml_is_cut(device) ? nvml_find_profile_id(device, profile_id, &profile)
                              : NVML_ERROR_NOT_SUPPORTED);
    uint32_t found_count = sim_mig_instances(nvml.machine, device->machine_index, found);
    *count = 0;
    for (uint32_t i = 0; i < found_count; i++)
        if (found[i].profile == profile)
            instances[(*count)++] = &nvml.gpu_instances[found[i].device];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *instance)
{
    struct sim_mig_instance found[SIM_MIG_SLOTS];
    NVML_CHECK(device, instance);
    REFUSE_IF(!nvml_is_cut(device), NVML_ERROR_NOT_SUPPORTED);
    uint32_t count = sim_mig_instances(nvml.machine, device->machine_index, found);
    for (uint32_t i = 0; i < count; i++)
        if (found[i].id == id) {
            *instance = &nvml.gpu_instances[found[i].device];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    struct sim_mig_instance found;
    uint32_t gpu;
    CHECK(nvml_check_gpu_instance(instance, info, &gpu, &found));
    const struct sim_mig_profile *profile = nvml_mig_profile(gpu, found.profile);
    *info = (nvmlGpuInstanceInfo_t){.device = nvml_device_at(gpu),
                                    .id = found.id,
                                    .profileId = profile->id,
                                    .placement = {.start = found.start, .size = profile->size}};
    return NVML_SUCCESS;
}
