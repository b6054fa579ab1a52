/*
 * How busy the device and its processes were in the last whole sampling window, which is all that
 * the books keep: the newest sample, of the buffer of them that a real driver has. A sample carries
 * the time at which its window ended, so that whoever has seen it does not get it again.
 */
#include <stdlib.h>
#include <time.h>

#include "nvml.h"
#include "visible_pid.h"

#define NS_PER_US 1000u
#define NS_PER_S 1000000000
#define CLOCK_STEP_NS 1000000

unsigned int nvml_busy_percent(const struct sim_device_books *books)
{
    return (unsigned int)(books->window_busy_ns * 100 / books->window_ns);
}

unsigned int nvml_busy_percent_of(nvmlDevice_t device)
{
    struct sim_device_books *books = nvml_read_books(device);
    unsigned int percent = books ? nvml_busy_percent(books) : 0;
    free(books);
    return percent;
}

/* A moment of the machine's clock on the wall clock, as NVML counts. The distance of the two is
 * kept while it does not jump: the same window must always end at the same microsecond. */
uint64_t nvml_wall_clock_us(uint64_t monotonic_ns)
{
    static int64_t kept_distance_ns;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t distance_ns = (int64_t)wall.tv_sec * NS_PER_S + wall.tv_nsec - (int64_t)sim_now_ns();
    int64_t kept_ns = __atomic_load_n(&kept_distance_ns, __ATOMIC_RELAXED);
    if (llabs(distance_ns - kept_ns) > CLOCK_STEP_NS) {
        __atomic_store_n(&kept_distance_ns, distance_ns, __ATOMIC_RELAXED);
        kept_ns = distance_ns;
    }
    return ((uint64_t)kept_ns + monotonic_ns) / NS_PER_US;
}

/* When the last whole window of `books` ended. */
static uint64_t window_end_us(const struct sim_device_books *books)
{
    return nvml_wall_clock_us(books->window_end_ns);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    NVML_CHECK(device, utilization);
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    utilization->gpu = nvml_busy_percent(books);
    utilization->memory = utilization->gpu / 2; /* a guess: memory traffic is not modelled */
    free(books);
    return NVML_SUCCESS;
}

/* ---- by process ------------------------------------------------------------------------------ */

/* Gives the processes that had anything of the last window, at most `room`; returns how many there
 * are. None when that window ended by `since_us`. */
static unsigned int process_samples(nvmlDevice_t device, const struct sim_device_books *books,
                                    unsigned long long since_us,
                                    nvmlProcessUtilizationSample_t *samples, unsigned int room)
{
    unsigned int found = 0;
    uint64_t at_us = window_end_us(books);
    for (uint32_t i = 0; i < books->client_count && at_us > since_us; i++) {
        const struct sim_client_books *client = &books->clients[i];
        uint32_t pid;
        if (!client->alive || !client->window_busy_ns || !nvml_visible_pid(client, &pid))
            continue;
        if (found < room)
            samples[found] = (nvmlProcessUtilizationSample_t){
                .pid = pid,
                .timeStamp = at_us,
                .smUtil = (unsigned int)(client->window_busy_ns * 100 / books->window_ns)};
        found++;
    }
    return found;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since_us)
{
    NVML_CHECK(device, count);
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    unsigned int room = samples ? *count : 0;
    unsigned int found = process_samples(device, books, since_us, samples, room);
    /* Asked how many there may be; by the next call any process can have begun to work. */
    *count = samples ? found : books->client_count;
    free(books);
    REFUSE_IF(!samples && *count, NVML_ERROR_INSUFFICIENT_SIZE);
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE
           : found      ? NVML_SUCCESS
                        : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info)
{
    NVML_CHECK(device, info);
    REFUSE_IF(info->version != nvmlProcessesUtilizationInfo_v1,
              NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    nvmlProcessUtilizationSample_t samples[SIM_PROCESS_SLOTS];
    unsigned int room = info->procUtilArray ? info->processSamplesCount : 0;
    unsigned int found =
        process_samples(device, books, info->lastSeenTimeStamp, samples, SIM_PROCESS_SLOTS);
    free(books);
    info->processSamplesCount = found;
    REFUSE_IF(!found, NVML_ERROR_NOT_FOUND);
    REFUSE_IF(found > room, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < found; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = samples[i].timeStamp, .pid = samples[i].pid, .smUtil = samples[i].smUtil};
    return NVML_SUCCESS;
}

/* ---- samples of the whole device ------------------------------------------------------------- */

static nvmlReturn_t sampled_value(nvmlDevice_t device, nvmlSamplingType_t type, unsigned int *value)
{
    nvmlUtilization_t utilization = {0};
    switch (type) {
    case NVML_TOTAL_POWER_SAMPLES:
        return nvmlDeviceGetPowerUsage(device, value);
    case NVML_PROCESSOR_CLK_SAMPLES:
        return nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, value);
    case NVML_MEMORY_CLK_SAMPLES:
        return nvmlDeviceGetClockInfo(device, NVML_CLOCK_MEM, value);
    case NVML_ENC_UTILIZATION_SAMPLES:
    case NVML_DEC_UTILIZATION_SAMPLES:
        *value = 0;
        return NVML_SUCCESS;
    case NVML_GPU_UTILIZATION_SAMPLES:
    case NVML_MEMORY_UTILIZATION_SAMPLES: {
        nvmlReturn_t result = nvmlDeviceGetUtilizationRates(device, &utilization);
        *value = type == NVML_GPU_UTILIZATION_SAMPLES ? utilization.gpu : utilization.memory;
        return result;
    }
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long since_us, nvmlValueType_t *value_type,
                                  unsigned int *count, nvmlSample_t *samples)
{
    nvmlSample_t newest = {0};
    NVML_CHECK(device, count);
    NVML_CHECK(device, value_type);
    INVALID_IF(samples && !*count);
    CHECK(sampled_value(device, type, &newest.sampleValue.uiVal));
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    newest.timeStamp = window_end_us(books);
    free(books);
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    REFUSE_IF(newest.timeStamp <= since_us, NVML_ERROR_NOT_FOUND);
    *count = 1;
    if (samples)
        *samples = newest;
    return NVML_SUCCESS;
}

/* ---- engines that nothing uses --------------------------------------------------------------- */

static nvmlReturn_t no_engine(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us)
{
    NVML_CHECK(device, percent);
    NVML_CHECK(device, period_us);
    *percent = 0;
    *period_us = SIM_WINDOW_NS / NS_PER_US;
    return NVML_SUCCESS;
}

SAME_AS(nvmlDeviceGetEncoderUtilization, no_engine);
SAME_AS(nvmlDeviceGetDecoderUtilization, no_engine);
SAME_AS(nvmlDeviceGetJpgUtilization, no_engine);
SAME_AS(nvmlDeviceGetOfaUtilization, no_engine);
