/* Compute instances. A GPU instance has one here, which takes all of it; the smaller ones that a
 * real one may be divided into are not supported. */
#include <stdio.h>
#include <string.h>

#include "nvml.h"

#define COMPUTE_INSTANCE 0

/* The driver's number of the profile of so many slices, which is its id, too. */
static unsigned int profile_of_slices(uint32_t slices)
{
    switch (slices) {
    case 1:
        return NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE;
    case 2:
        return NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE;
    case 3:
        return NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE;
    case 4:
        return NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE;
    default:
        return NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE;
    }
}

/* What of a GPU instance a call asks for. */
struct asked {
    uint32_t gpu;
    struct sim_mig_instance instance;
    const struct sim_mig_profile *profile;
    unsigned int compute_profile;
};

static nvmlReturn_t look(nvmlGpuInstance_t instance, unsigned int profile, const void *result,
                         struct asked *asked)
{
    CHECK(nvml_check_gpu_instance(instance, result, &asked->gpu, &asked->instance));
    asked->profile = nvml_mig_profile(asked->gpu, asked->instance.profile);
    asked->compute_profile = profile_of_slices(asked->profile->slices);
    INVALID_IF(profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT);
    return profile == asked->compute_profile ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance,
                                                          unsigned int profile,
                                                          unsigned int engine_profile,
                                                          nvmlComputeInstanceProfileInfo_t *info)
{
    struct asked asked;
    CHECK(look(instance, profile, info, &asked));
    INVALID_IF(engine_profile >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT);
    *info =
        (nvmlComputeInstanceProfileInfo_t){.id = asked.compute_profile,
                                           .sliceCount = asked.profile->slices,
                                           .instanceCount = 1,
                                           .multiprocessorCount = asked.profile->sm_count,
                                           .sharedCopyEngineCount = asked.profile->copy_engines,
                                           .sharedDecoderCount = asked.profile->decoders,
                                           .sharedEncoderCount = asked.profile->encoders,
                                           .sharedJpegCount = asked.profile->jpeg_engines,
                                           .sharedOfaCount = asked.profile->optical_flow_engines};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine_profile,
    nvmlComputeInstanceProfileInfo_v2_t *info)
{
    nvmlComputeInstanceProfileInfo_t plain;
    struct asked asked;
    CHECK(look(instance, profile, info, &asked));
    CHECK(nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, engine_profile, &plain));
    REFUSE_IF(info->version != nvmlComputeInstanceProfileInfo_v2 &&
                  info->version != nvmlComputeInstanceProfileInfo_v3,
              NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    info->id = plain.id;
    info->sliceCount = plain.sliceCount;
    info->instanceCount = plain.instanceCount;
    info->multiprocessorCount = plain.multiprocessorCount;
    info->sharedCopyEngineCount = plain.sharedCopyEngineCount;
    info->sharedDecoderCount = plain.sharedDecoderCount;
    info->sharedEncoderCount = plain.sharedEncoderCount;
    info->sharedJpegCount = plain.sharedJpegCount;
    info->sharedOfaCount = plain.sharedOfaCount;
    /* the one in a 1g.5gb+me is a 1g.5gb */
    snprintf(info->name, sizeof info->name, "MIG %.*s", (int)strcspn(asked.profile->name, "+"),
             asked.profile->name);
    if (info->version == nvmlComputeInstanceProfileInfo_v3) /* which only has more behind it */
        ((nvmlComputeInstanceProfileInfo_v3_t *)(void *)info)->capabilities = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance,
                                                                unsigned int profile_id,
                                                                unsigned int *count)
{
    struct asked asked;
    CHECK(look(instance, profile_id, count, &asked));
    *count = asked.instance.has_compute ? 0 : 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t instance, unsigned int profile_id, nvmlComputeInstancePlacement_t *placements,
    unsigned int *count)
{
    struct asked asked;
    CHECK(look(instance, profile_id, count, &asked));
    if (placements)
        placements[0] = (nvmlComputeInstancePlacement_t){.size = asked.profile->slices};
    *count = 1;
    return NVML_SUCCESS;
}

/* ---- making and ending them ------------------------------------------------------------------ */

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance,
                                                  unsigned int profile_id,
                                                  nvmlComputeInstance_t *compute_instance)
{
    struct asked asked;
    CHECK(look(instance, profile_id, compute_instance, &asked));
    struct sim_machine *machine = nvml_open_to_change();
    REFUSE_IF(!machine, NVML_ERROR_UNKNOWN);
    nvmlReturn_t result =
        nvml_mig_result(sim_mig_create_compute(machine, asked.gpu, asked.instance.slot));
    sim_machine_close(machine);
    if (result == NVML_SUCCESS)
        *compute_instance = &nvml.compute_instances[asked.instance.device];
    return result;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t instance, unsigned int profile_id,
    const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *compute_instance)
{
    struct asked asked;
    CHECK(look(instance, profile_id, placement, &asked));
    INVALID_IF(placement->start != 0 || placement->size != asked.profile->slices);
    return nvmlGpuInstanceCreateComputeInstance(instance, profile_id, compute_instance);
}

/* NVML_SUCCESS, or what a call with this compute instance must answer. */
static nvmlReturn_t check(nvmlComputeInstance_t compute_instance, const void *result,
                          struct asked *asked)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(compute_instance < nvml.compute_instances ||
               compute_instance >= nvml.compute_instances + SIM_MAX_DEVICES);
    CHECK(nvml_check_gpu_instance(&nvml.gpu_instances[compute_instance->room], result, &asked->gpu,
                                  &asked->instance));
    INVALID_IF(!asked->instance.has_compute);
    asked->profile = nvml_mig_profile(asked->gpu, asked->instance.profile);
    asked->compute_profile = profile_of_slices(asked->profile->slices);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute_instance)
{
    struct asked asked;
    CHECK(check(compute_instance, compute_instance, &asked));
    struct sim_machine *machine = nvml_open_to_change();
    REFUSE_IF(!machine, NVML_ERROR_UNKNOWN);
    nvmlReturn_t result =
        nvml_mig_result(sim_mig_destroy_compute(machine, asked.gpu, asked.instance.slot));
    sim_machine_close(machine);
    return result;
}

/* ---- which there are ------------------------------------------------------------------------- */

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile_id,
                                                nvmlComputeInstance_t *compute_instances,
                                                unsigned int *count)
{
    struct asked asked;
    nvmlReturn_t result = look(instance, profile_id, compute_instances, &asked);
    if (!count)
        return nvml_is_started() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
    if (result != NVML_SUCCESS && result != NVML_ERROR_NOT_SUPPORTED)
        return result;
    *count = result == NVML_SUCCESS && asked.instance.has_compute;
    if (*count)
        compute_instances[0] = &nvml.compute_instances[asked.instance.device];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                   nvmlComputeInstance_t *compute_instance)
{
    struct sim_mig_instance found;
    uint32_t gpu;
    CHECK(nvml_check_gpu_instance(instance, compute_instance, &gpu, &found));
    REFUSE_IF(id != COMPUTE_INSTANCE || !found.has_compute, NVML_ERROR_NOT_FOUND);
    *compute_instance = &nvml.compute_instances[found.device];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute_instance,
                                           nvmlComputeInstanceInfo_t *info)
{
    struct asked asked;
    CHECK(check(compute_instance, info, &asked));
    *info = (nvmlComputeInstanceInfo_t){.device = nvml_device_at(asked.gpu),
                                        .gpuInstance = &nvml.gpu_instances[compute_instance->room],
                                        .id = COMPUTE_INSTANCE,
                                        .profileId = asked.compute_profile,
                                        .placement = {.size = asked.profile->slices}};
    return NVML_SUCCESS;
}

SAME_AS(nvmlComputeInstanceGetInfo, nvmlComputeInstanceGetInfo_v2);
