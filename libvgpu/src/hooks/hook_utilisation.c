/* Hooks of NVML's utilisation: how busy the container's own processes kept the device.
 *
 * Where a core cap has their launches measured, from the GPU time in their slots (utilisation.h),
 * percent of the whole GPU. Elsewhere the driver's samples of these processes; where it cannot be
 * told which those are (own_samples.h), the whole GPU's figure, and no samples by process. What is
 * true of the GPU's memory traffic is taken in proportion: nobody measures whose it is. */
#include <time.h>

#include "compute/cap/cap.h"
#include "compute/measure/utilisation.h"
#include "hooks/hook_nvml.h"
#include "hooks/own_samples.h"
#include "slice/waiting.h"

#define WHOLE_PERCENT 100
#define US_PER_S 1000000ull
#define NS_PER_US 1000

static unsigned long long wall_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * US_PER_S + (unsigned long long)now.tv_nsec / NS_PER_US;
}

/* What was used since the last look at it, and a look for the next one to ask. */
static struct utilisation_window look(int device)
{
    uint64_t now_ns = (uint64_t)waiting_now_ns();
    struct utilisation_window window = utilisation_window(region_usage(), (uint32_t)device, now_ns);
    utilisation_sample(region_usage(), (uint32_t)device, now_ns);
    return window;
}

/* ---- by process ------------------------------------------------------------------------------ */

static unsigned int measured_samples(int device, nvmlProcessUtilizationSample_t *samples)
{
    struct ledger ledger = region_ledger((uint32_t)device);
    struct utilisation_window window = look(device);
    unsigned long long now_us = wall_clock_us();
    unsigned int count = 0;
    for (uint32_t slot = 0; slot < slot_processes_slots(&ledger) && count < OWN_SAMPLES_MOST;
         slot++) {
        struct process process;
        uint32_t percent = utilisation_of_slot(region_usage(), slot, (uint32_t)device, &window);
        if (percent > 0 && slot_processes_look(&ledger, slot, &process))
            samples[count++] = (nvmlProcessUtilizationSample_t){
                .pid = process.pid, .timeStamp = now_us, .smUtil = percent};
    }
    return count;
}

/* Those newer than `since_us`, at most OWN_SAMPLES_MOST. False when nobody can tell. */
static bool samples_of(nvmlDevice_t handle, int device, unsigned long long since_us,
                       nvmlProcessUtilizationSample_t *samples, unsigned int *count)
{
    struct process own[VGPU_SLOT_COUNT];
    *count = 0;
    if (device < 0)
        return true;
    if (cap_is_set((uint32_t)device)) {
        if (wall_clock_us() > since_us)
            *count = measured_samples(device, samples);
        return true;
    }
    struct ledger ledger = region_ledger((uint32_t)device);
    uint32_t own_count = slot_processes_holding(&ledger, own);
    return own_count == 0 || own_samples(handle, own, own_count, since_us, samples, count);
}

static unsigned int using(int device)
{
    struct process own[VGPU_SLOT_COUNT];
    if (device < 0)
        return 0;
    struct ledger ledger = region_ledger((uint32_t)device);
    return slot_processes_using(&ledger, own);
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle,
                                                         nvmlProcessUtilizationSample_t *samples,
                                                         unsigned int *count,
                                                         unsigned long long since_us)
{
    nvmlProcessUtilizationSample_t found[OWN_SAMPLES_MOST];
    unsigned int none = 0;
    NVML_NEEDS(nvmlDeviceGetProcessUtilization);
    if (region_open() == REGION_NONE)
        return real.nvmlDeviceGetProcessUtilization(handle, samples, count, since_us);
    nvmlReturn_t result =
        real.nvmlDeviceGetProcessUtilization(handle, NULL, count != NULL ? &none : NULL, since_us);
    if (!is_answerable(result) || count == NULL)
        return result;
    int device = shown_device(handle);
    unsigned int room = *count;
    if (samples == NULL) { /* how many there may be: any process can begin to work */
        *count = using(device);
        return *count > 0 ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_ERROR_NOT_FOUND;
    }
    samples_of(handle, device, since_us, found, count);
    for (unsigned int i = 0; i < *count && i < room; i++)
        samples[i] = found[i];
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return *count > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t handle,
                                                               nvmlProcessesUtilizationInfo_t *info)
{
    nvmlProcessUtilizationSample_t found[OWN_SAMPLES_MOST];
    unsigned int count;
    NVML_NEEDS(nvmlDeviceGetProcessesUtilizationInfo);
    if (region_open() == REGION_NONE || info == NULL)
        return real.nvmlDeviceGetProcessesUtilizationInfo(handle, info);
    nvmlProcessesUtilizationInfo_t asked = {.version = info->version,
                                            .lastSeenTimeStamp = info->lastSeenTimeStamp};
    nvmlReturn_t result = real.nvmlDeviceGetProcessesUtilizationInfo(handle, &asked);
    if (!is_answerable(result))
        return result;
    samples_of(handle, shown_device(handle), info->lastSeenTimeStamp, found, &count);
    unsigned int room = info->procUtilArray != NULL ? info->processSamplesCount : 0;
    info->processSamplesCount = count;
    for (unsigned int i = 0; i < count && i < room; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = found[i].timeStamp,
                                                                   .pid = found[i].pid,
                                                                   .smUtil = found[i].smUtil,
                                                                   .memUtil = found[i].memUtil,
                                                                   .encUtil = found[i].encUtil,
                                                                   .decUtil = found[i].decUtil};
    if (count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return count > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* ---- of the container ------------------------------------------------------------------------ */

/* The container's part of what the whole GPU was busy. */
static unsigned int own_percent(nvmlDevice_t handle, int device, unsigned int gpu_percent)
{
    nvmlProcessUtilizationSample_t samples[OWN_SAMPLES_MOST];
    unsigned int count;
    unsigned int sum = 0;
    if (device < 0)
        return 0;
    if (cap_is_set((uint32_t)device)) {
        struct utilisation_window window = look(device);
        return utilisation_of_container(region_usage(), (uint32_t)device, &window);
    }
    if (!samples_of(handle, device, wall_clock_us() - US_PER_S, samples, &count))
        return gpu_percent;
    for (unsigned int i = 0; i < count; i++)
        sum += samples[i].smUtil;
    return sum < WHOLE_PERCENT ? sum : WHOLE_PERCENT;
}

/* The driver's figures turned into the container's. */
static void make_own(nvmlDevice_t handle, nvmlUtilization_t *utilization)
{
    unsigned int whole = utilization->gpu;
    utilization->gpu = own_percent(handle, shown_device(handle), whole);
    if (utilization->gpu < whole)
        utilization->memory = utilization->memory * utilization->gpu / whole;
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle,
                                                       nvmlUtilization_t *utilization)
{
    NVML_NEEDS(nvmlDeviceGetUtilizationRates);
    nvmlReturn_t result = real.nvmlDeviceGetUtilizationRates(handle, utilization);
    if (result == NVML_SUCCESS && utilization != NULL && region_open() != REGION_NONE)
        make_own(handle, utilization);
    return result;
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t handle,
                                                         nvmlGpuDynamicPstatesInfo_t *info)
{
    NVML_NEEDS(nvmlDeviceGetDynamicPstatesInfo);
    nvmlReturn_t result = real.nvmlDeviceGetDynamicPstatesInfo(handle, info);
    if (result != NVML_SUCCESS || info == NULL || region_open() == REGION_NONE)
        return result;
    unsigned int *gpu = &info->utilization[NVML_GPU_UTILIZATION_DOMAIN_GPU].percentage;
    unsigned int *memory = &info->utilization[NVML_GPU_UTILIZATION_DOMAIN_FB].percentage;
    nvmlUtilization_t utilization = {*gpu, *memory};
    make_own(handle, &utilization);
    *gpu = utilization.gpu;
    *memory = utilization.memory;
    return result;
}

/* One sample, of now: the buffer that the driver keeps is the whole GPU's. */
static nvmlReturn_t newest_sample(nvmlDevice_t handle, nvmlSamplingType_t type,
                                  unsigned long long since_us, unsigned int *count,
                                  nvmlSample_t *samples)
{
    nvmlUtilization_t utilization = {0};
    nvmlSample_t newest = {.timeStamp = wall_clock_us()};
    nvmlReturn_t result = nvmlDeviceGetUtilizationRates(handle, &utilization);
    if (result != NVML_SUCCESS)
        return result;
    if (newest.timeStamp <= since_us)
        return NVML_ERROR_NOT_FOUND;
    newest.sampleValue.uiVal =
        type == NVML_GPU_UTILIZATION_SAMPLES ? utilization.gpu : utilization.memory;
    ANSWER(count, 1);
    ANSWER(samples, newest);
    return NVML_SUCCESS;
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t handle, nvmlSamplingType_t type,
                                              unsigned long long since_us,
                                              nvmlValueType_t *value_type, unsigned int *count,
                                              nvmlSample_t *samples)
{
    NVML_NEEDS(nvmlDeviceGetSamples);
    bool is_ours = type == NVML_GPU_UTILIZATION_SAMPLES || type == NVML_MEMORY_UTILIZATION_SAMPLES;
    if (!is_ours || region_open() == REGION_NONE || (samples != NULL && count != NULL && !*count))
        return real.nvmlDeviceGetSamples(handle, type, since_us, value_type, count, samples);
    nvmlReturn_t result =
        real.nvmlDeviceGetSamples(handle, type, since_us, value_type, count, NULL);
    if (!is_answerable(result))
        return result;
    ANSWER(value_type, NVML_VALUE_TYPE_UNSIGNED_INT);
    return newest_sample(handle, type, since_us, count, samples);
}
