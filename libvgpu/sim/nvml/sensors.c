/*
 * What the board feels like: heat, power and clocks, made up from how busy the device was in the
 * last sampling window. They go with the load and are no model of a board; energy is the same power
 * over the whole time.
 */
#include <stdlib.h>

#include "nvml.h"

#define IDLE_CELSIUS 32
#define BUSY_CELSIUS_MORE 38
#define IDLE_POWER_PART 7        /* an idle board draws a seventh of its limit */
#define LEAST_POWER_LIMIT_PART 2 /* and can be limited down to half of it */
#define IDLE_MHZ 345
#define LEAST_MHZ 210
#define MHZ_STEP 15
#define KHZ_PER_MHZ 1000
#define NS_PER_US 1000u
#define NS_PER_S 1000000000.0

/* ---- heat ------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius)
{
    NVML_CHECK(device, celsius);
    INVALID_IF(sensor != NVML_TEMPERATURE_GPU);
    *celsius = IDLE_CELSIUS + nvml_busy_percent_of(device) * BUSY_CELSIUS_MORE / 100;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    unsigned int celsius;
    NVML_CHECK(device, temperature);
    REFUSE_IF(temperature->version != nvmlTemperature_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    CHECK(nvmlDeviceGetTemperature(device, temperature->sensorType, &celsius));
    temperature->temperature = (int)celsius;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t threshold,
                                               unsigned int *celsius)
{
    NVML_CHECK(device, celsius);
    static const unsigned int thresholds[] = {92, 89, 95, 85};
    REFUSE_IF((unsigned int)threshold > NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
              NVML_ERROR_NOT_SUPPORTED);
    *celsius = thresholds[threshold];
    return NVML_SUCCESS;
}

/* Boards of servers have no fan of their own. */
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
    NVML_CHECK(device, percent);
    return NVML_ERROR_NOT_SUPPORTED;
}

TELL(nvmlDeviceGetNumFans, unsigned int, 0)

/* ---- power ----------------------------------------------------------------------------------- */

static unsigned int limit_milliwatts(nvmlDevice_t device)
{
    return nvml_profile_of(device)->power_limit_milliwatts;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    NVML_CHECK(device, milliwatts);
    unsigned int limit = limit_milliwatts(device), idle = limit / IDLE_POWER_PART;
    *milliwatts = idle + (limit - idle) / 100 * nvml_busy_percent_of(device);
    return NVML_SUCCESS;
}

/* Since the driver was loaded, which is when the host started. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device,
                                                 unsigned long long *millijoules)
{
    NVML_CHECK(device, millijoules);
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    unsigned int limit = limit_milliwatts(device), idle = limit / IDLE_POWER_PART;
    *millijoules = (unsigned long long)(idle * ((double)books->clock_ns / NS_PER_S) +
                                        (limit - idle) * ((double)books->busy_ns / NS_PER_S));
    free(books);
    return NVML_SUCCESS;
}

TELL(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
TELL(nvmlDeviceGetPowerManagementLimit, unsigned int, limit_milliwatts(device))
SAME_AS(nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimit);
SAME_AS(nvmlDeviceGetPowerManagementDefaultLimit, nvmlDeviceGetPowerManagementLimit);

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                          unsigned int *least_milliwatts,
                                                          unsigned int *most_milliwatts)
{
    NVML_CHECK(device, least_milliwatts);
    NVML_CHECK(device, most_milliwatts);
    *least_milliwatts = limit_milliwatts(device) / LEAST_POWER_LIMIT_PART;
    *most_milliwatts = limit_milliwatts(device);
    return NVML_SUCCESS;
}

/* ---- clocks: at their highest while anything runs, never lowered ------------------------------ */

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    NVML_CHECK(device, mhz);
    INVALID_IF((unsigned int)type > NVML_CLOCK_VIDEO);
    *mhz = (type == NVML_CLOCK_MEM ? nvml_profile_of(device)->memory_clock_khz
                                   : nvml_profile_of(device)->clock_khz) /
           KHZ_PER_MHZ;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    nvmlReturn_t result = nvmlDeviceGetMaxClockInfo(device, type, mhz);
    if (result == NVML_SUCCESS && type != NVML_CLOCK_MEM && nvml_busy_percent_of(device) == 0)
        *mhz = IDLE_MHZ;
    return result;
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id,
                                unsigned int *mhz)
{
    NVML_CHECK(device, mhz);
    INVALID_IF((unsigned int)id > NVML_CLOCK_ID_CUSTOMER_BOOST_MAX);
    return id == NVML_CLOCK_ID_CURRENT ? nvmlDeviceGetClockInfo(device, type, mhz)
                                       : nvmlDeviceGetMaxClockInfo(device, type, mhz);
}

SAME_AS(nvmlDeviceGetApplicationsClock, nvmlDeviceGetMaxClockInfo);
SAME_AS(nvmlDeviceGetDefaultApplicationsClock, nvmlDeviceGetMaxClockInfo);
SAME_AS(nvmlDeviceGetMaxCustomerBoostClock, nvmlDeviceGetMaxClockInfo);

/* Clocks from `most` down to `least` in steps; `*count` says how many fit, and then how many there
 * are. */
static nvmlReturn_t give_clocks(unsigned int most, unsigned int least, unsigned int *count,
                                unsigned int *mhz)
{
    unsigned int there = (most - least) / MHZ_STEP + 1, room = mhz ? *count : 0;
    *count = there;
    REFUSE_IF(room < there, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < there; i++)
        mhz[i] = most - i * MHZ_STEP;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *mhz)
{
    NVML_CHECK(device, count);
    unsigned int only = nvml_profile_of(device)->memory_clock_khz / KHZ_PER_MHZ;
    return give_clocks(only, only, count, mhz);
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory_mhz,
                                                  unsigned int *count, unsigned int *mhz)
{
    NVML_CHECK(device, count);
    REFUSE_IF(memory_mhz != nvml_profile_of(device)->memory_clock_khz / KHZ_PER_MHZ,
              NVML_ERROR_NOT_FOUND);
    return give_clocks(nvml_profile_of(device)->clock_khz / KHZ_PER_MHZ, LEAST_MHZ, count, mhz);
}

TELL(nvmlDeviceGetPerformanceState, nvmlPstates_t,
     nvml_busy_percent_of(device) ? NVML_PSTATE_0 : NVML_PSTATE_8)
SAME_AS(nvmlDeviceGetPowerState, nvmlDeviceGetPerformanceState);
TELL(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long,
     nvml_busy_percent_of(device) ? nvmlClocksEventReasonNone : nvmlClocksEventReasonGpuIdle)
SAME_AS(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksEventReasons);
TELL(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, nvmlClocksEventReasonGpuIdle)
SAME_AS(nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDeviceGetSupportedClocksEventReasons);

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy,
                                          nvmlViolationTime_t *time)
{
    NVML_CHECK(device, time);
    INVALID_IF(
        (unsigned int)policy > NVML_PERF_POLICY_TOTAL_BASE_CLOCKS ||
        (policy > NVML_PERF_POLICY_RELIABILITY && policy < NVML_PERF_POLICY_TOTAL_APP_CLOCKS));
    *time = (nvmlViolationTime_t){.referenceTime = sim_now_ns() / NS_PER_US};
    return NVML_SUCCESS;
}
