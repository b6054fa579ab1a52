/*
 * ECC errors, as they were raised on the machine (machine_api.h). They are all counted where most
 * of them happen, in device memory, and since the machine was made: a simulated GPU never restarts,
 * so that volatile and aggregate counters are the same. No row is remapped and no page retired.
 */
#include "nvml.h"

#define AMPERE 8

nvmlReturn_t nvml_ecc_errors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                             unsigned long long *errors)
{
    uint64_t corrected, uncorrected;
    INVALID_IF((unsigned int)type > NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
    sim_machine_ecc_errors(nvml.machine, device->machine_index, &corrected, &uncorrected);
    *errors = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? corrected : uncorrected;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now,
                                  nvmlEnableState_t *pending)
{
    NVML_CHECK(device, now);
    NVML_CHECK(device, pending);
    *now = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

TELL(nvmlDeviceGetDefaultEccMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *errors)
{
    NVML_CHECK(device, errors);
    return (unsigned int)counter > NVML_AGGREGATE_ECC ? NVML_ERROR_INVALID_ARGUMENT
                                                      : nvml_ecc_errors(device, type, errors);
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                            nvmlEccCounterType_t counter,
                                            nvmlEccErrorCounts_t *errors)
{
    unsigned long long total;
    NVML_CHECK(device, errors);
    CHECK(nvmlDeviceGetTotalEccErrors(device, type, counter, &total));
    *errors = (nvmlEccErrorCounts_t){.deviceMemory = total};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                             nvmlEccCounterType_t counter,
                                             nvmlMemoryLocation_t location,
                                             unsigned long long *errors)
{
    NVML_CHECK(device, errors);
    INVALID_IF((unsigned int)location > NVML_MEMORY_LOCATION_SRAM);
    nvmlReturn_t result = nvmlDeviceGetTotalEccErrors(device, type, counter, errors);
    if (location != NVML_MEMORY_LOCATION_DEVICE_MEMORY)
        *errors = 0;
    return result;
}

/* ---- what is done about them: rows are remapped from Ampere on, pages retired before ------- */

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                       unsigned int *uncorrected, unsigned int *pending,
                                       unsigned int *failed)
{
    NVML_CHECK(device, corrected);
    NVML_CHECK(device, uncorrected);
    NVML_CHECK(device, pending);
    NVML_CHECK(device, failed);
    REFUSE_IF(nvml_profile_of(device)->compute_major < AMPERE, NVML_ERROR_NOT_SUPPORTED);
    *corrected = *uncorrected = *pending = *failed = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                       unsigned int *count, unsigned long long *addresses)
{
    NVML_CHECK(device, count);
    (void)addresses;
    INVALID_IF((unsigned int)cause > NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR);
    REFUSE_IF(nvml_profile_of(device)->compute_major >= AMPERE, NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                          unsigned int *count, unsigned long long *addresses,
                                          unsigned long long *timestamps)
{
    (void)timestamps;
    return nvmlDeviceGetRetiredPages(device, cause, count, addresses);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending)
{
    NVML_CHECK(device, pending);
    REFUSE_IF(nvml_profile_of(device)->compute_major >= AMPERE, NVML_ERROR_NOT_SUPPORTED);
    *pending = NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}
