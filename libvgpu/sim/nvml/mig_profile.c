/* What a GPU can be cut into, from the table of its model. */
#include <stdio.h>

#include "nvml.h"

#define NO_PROFILE UINT32_MAX

static uint32_t find_profile(nvmlDevice_t device, unsigned int key, bool by_id)
{
    const struct sim_device_identity *identity = nvml_identity_of(device);
    for (uint32_t i = 0; i < identity->mig_profile_count; i++)
        if ((by_id ? identity->mig_profiles[i].id : identity->mig_profiles[i].number) == key)
            return i;
    return NO_PROFILE;
}

nvmlReturn_t nvml_find_profile_id(nvmlDevice_t device, unsigned int id, uint32_t *profile)
{
    REFUSE_IF(sim_mig_mode(nvml.machine, device->machine_index) < 0, NVML_ERROR_NOT_SUPPORTED);
    *profile = find_profile(device, id, true);
    return *profile == NO_PROFILE ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number,
                                                 nvmlGpuInstanceProfileInfo_t *info)
{
    NVML_CHECK(device, info);
    INVALID_IF(number >= NVML_GPU_INSTANCE_PROFILE_COUNT);
    uint32_t found = find_profile(device, number, false);
    REFUSE_IF(found == NO_PROFILE, NVML_ERROR_NOT_SUPPORTED);
    const struct sim_mig_profile *profile = nvml_mig_profile(device->machine_index, found);
    *info = (nvmlGpuInstanceProfileInfo_t){.id = profile->id,
                                           .sliceCount = profile->slices,
                                           .instanceCount = profile->instances,
                                           .multiprocessorCount = profile->sm_count,
                                           .copyEngineCount = profile->copy_engines,
                                           .decoderCount = profile->decoders,
                                           .encoderCount = profile->encoders,
                                           .jpegCount = profile->jpeg_engines,
                                           .ofaCount = profile->optical_flow_engines,
                                           .memorySizeMB = profile->memory_mib};
    return NVML_SUCCESS;
}

/* Fills in version 2 or 3, whichever the caller has. */
static nvmlReturn_t fill_versioned(const struct sim_mig_profile *profile,
                                   nvmlGpuInstanceProfileInfo_v2_t *info)
{
    nvmlGpuInstanceProfileInfo_v2_t v2 = {.version = info->version,
                                          .id = profile->id,
                                          .sliceCount = profile->slices,
                                          .instanceCount = profile->instances,
                                          .multiprocessorCount = profile->sm_count,
                                          .copyEngineCount = profile->copy_engines,
                                          .decoderCount = profile->decoders,
                                          .encoderCount = profile->encoders,
                                          .jpegCount = profile->jpeg_engines,
                                          .ofaCount = profile->optical_flow_engines,
                                          .memorySizeMB = profile->memory_mib};
    nvmlGpuInstanceProfileInfo_v3_t v3 = {.version = info->version,
                                          .id = v2.id,
                                          .sliceCount = v2.sliceCount,
                                          .instanceCount = v2.instanceCount,
                                          .multiprocessorCount = v2.multiprocessorCount,
                                          .copyEngineCount = v2.copyEngineCount,
                                          .decoderCount = v2.decoderCount,
                                          .encoderCount = v2.encoderCount,
                                          .jpegCount = v2.jpegCount,
                                          .ofaCount = v2.ofaCount,
                                          .memorySizeMB = v2.memorySizeMB};
    snprintf(v2.name, sizeof v2.name, "MIG %s", profile->name);
    snprintf(v3.name, sizeof v3.name, "MIG %s", profile->name);
    if (info->version == nvmlGpuInstanceProfileInfo_v3)
        *(nvmlGpuInstanceProfileInfo_v3_t *)(void *)info = v3;
    else
        *info = v2;
    return NVML_SUCCESS;
}

static nvmlReturn_t versioned_info(nvmlDevice_t device, unsigned int key, bool by_id,
                                   nvmlGpuInstanceProfileInfo_v2_t *info)
{
    NVML_CHECK(device, info);
    REFUSE_IF(info->version != nvmlGpuInstanceProfileInfo_v2 &&
                  info->version != nvmlGpuInstanceProfileInfo_v3,
              NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    INVALID_IF(!by_id && key >= NVML_GPU_INSTANCE_PROFILE_COUNT);
    uint32_t found = find_profile(device, key, by_id);
    REFUSE_IF(!nvml_is_cut(device) || found == NO_PROFILE, NVML_ERROR_NOT_SUPPORTED);
    return fill_versioned(nvml_mig_profile(device->machine_index, found), info);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number,
                                                  nvmlGpuInstanceProfileInfo_v2_t *info)
{
    return versioned_info(device, number, false, info);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id,
                                                      nvmlGpuInstanceProfileInfo_v2_t *info)
{
    return versioned_info(device, id, true, info);
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                           nvmlGpuInstancePlacement_t *placements,
                                                           unsigned int *count)
{
    uint32_t found;
    NVML_CHECK(device, count);
    CHECK(nvml_find_profile_id(device, id, &found));
    const struct sim_mig_profile *profile = nvml_mig_profile(device->machine_index, found);
    *count = 0;
    for (unsigned int start = 0; start < SIM_MIG_SLICES; start++)
        if (profile->starts >> start & 1) {
            if (placements)
                placements[*count] =
                    (nvmlGpuInstancePlacement_t){.start = start, .size = profile->size};
            ++*count;
        }
    return NVML_SUCCESS;
}

SAME_AS(nvmlDeviceGetGpuInstancePossiblePlacements, nvmlDeviceGetGpuInstancePossiblePlacements_v2);

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id,
                                                       unsigned int *count)
{
    uint32_t profile;
    NVML_CHECK(device, count);
    CHECK(nvml_is_cut(device) ? nvml_find_profile_id(device, id, &profile)
                              : NVML_ERROR_NOT_SUPPORTED);
    *count = sim_mig_capacity(nvml.machine, device->machine_index, profile);
    return NVML_SUCCESS;
}
