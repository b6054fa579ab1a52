/* Modes, and what the board feels like: figures that go with the load, not a thermal model. */
#include <stdlib.h>

#include "nvml.h"

#define IDLE_CELSIUS 32
#define BUSY_CELSIUS_MORE 38
#define IDLE_POWER_PART 7 /* an idle board draws a seventh of its limit */
#define IDLE_MHZ 345
#define PCIE_GENERATION 4
#define PCIE_LANES 16
#define KHZ_PER_MHZ 1000

static const struct sim_profile *profile_of(nvmlDevice_t device)
{
    return &sim_machine_device(nvml.machine, device->machine_index)->header->identity.profile;
}

static unsigned int busy_percent(nvmlDevice_t device)
{
    struct sim_device_books *books = nvml_read_books(device);
    unsigned int percent = books ? nvml_busy_percent(books) : 0;
    free(books);
    return percent;
}

/* A question with the same answer on every simulated GPU. */
#define CONSTANT(function, type, value) \
    nvmlReturn_t function(nvmlDevice_t device, type *result) \
    { \
        NVML_CHECK(device, result); \
        *result = value; \
        return NVML_SUCCESS; \
    }

CONSTANT(nvmlDeviceGetMaxMigDeviceCount, unsigned int, 0)
CONSTANT(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
CONSTANT(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
CONSTANT(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
CONSTANT(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
CONSTANT(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
CONSTANT(nvmlDeviceGetPowerManagementLimit, unsigned int,
         profile_of(device)->power_limit_milliwatts)
CONSTANT(nvmlDeviceGetEnforcedPowerLimit, unsigned int, profile_of(device)->power_limit_milliwatts)
CONSTANT(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, PCIE_GENERATION)
CONSTANT(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, PCIE_GENERATION)
CONSTANT(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, PCIE_LANES)
CONSTANT(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, PCIE_LANES)
CONSTANT(nvmlDeviceGetSupportedEventTypes, unsigned long long,
         nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError |
             nvmlEventTypeDoubleBitEccError)

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending)
{
    NVML_CHECK(device, now);
    NVML_CHECK(device, pending);
    *now = *pending = NVML_FEATURE_DISABLED;
    return profile_of(device)->compute_major >= 8 && profile_of(device)->compute_minor == 0
               ? NVML_SUCCESS
               : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *instance)
{
    NVML_CHECK(device, instance);
    (void)index;
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    NVML_CHECK(device, mode);
    struct sim_device_books *books = nvml_read_books(device);
    if (!books)
        return NVML_ERROR_MEMORY;
    *mode = (nvmlComputeMode_t)books->compute_mode;
    free(books);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
    NVML_CHECK(device, device);
    if ((unsigned int)mode > NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return NVML_ERROR_INVALID_ARGUMENT;
    /* The real one is for root; whoever can write the machine's file is that here. */
    return sim_machine_set_compute_mode(nvml.machine, device->machine_index, (uint32_t)mode) == 0
               ? NVML_SUCCESS
               : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now,
                                  nvmlEnableState_t *pending)
{
    NVML_CHECK(device, now);
    NVML_CHECK(device, pending);
    *now = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *errors)
{
    NVML_CHECK(device, errors);
    (void)type;
    (void)counter;
    *errors = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius)
{
    NVML_CHECK(device, celsius);
    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = IDLE_CELSIUS + busy_percent(device) * BUSY_CELSIUS_MORE / 100;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t threshold,
                                               unsigned int *celsius)
{
    NVML_CHECK(device, celsius);
    static const unsigned int thresholds[] = {92, 89, 95, 85};
    if ((unsigned int)threshold > NVML_TEMPERATURE_THRESHOLD_GPU_MAX)
        return NVML_ERROR_NOT_SUPPORTED;
    *celsius = thresholds[threshold];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
    NVML_CHECK(device, milliwatts);
    unsigned int limit = profile_of(device)->power_limit_milliwatts, idle = limit / IDLE_POWER_PART;
    *milliwatts = idle + (limit - idle) / 100 * busy_percent(device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
    NVML_CHECK(device, percent);
    return NVML_ERROR_NOT_SUPPORTED; /* boards of servers have no fan of their own */
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    NVML_CHECK(device, mhz);
    if ((unsigned int)type > NVML_CLOCK_VIDEO)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mhz = (type == NVML_CLOCK_MEM ? profile_of(device)->memory_clock_khz
                                   : profile_of(device)->clock_khz) /
           KHZ_PER_MHZ;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
    nvmlReturn_t result = nvmlDeviceGetMaxClockInfo(device, type, mhz);
    if (result == NVML_SUCCESS && type != NVML_CLOCK_MEM && busy_percent(device) == 0)
        *mhz = IDLE_MHZ;
    return result;
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state)
{
    NVML_CHECK(device, state);
    *state = busy_percent(device) ? NVML_PSTATE_0 : NVML_PSTATE_8;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *state)
{
    return nvmlDeviceGetPerformanceState(device, state);
}
