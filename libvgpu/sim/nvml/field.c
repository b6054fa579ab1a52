/* What else this library knows of a device, by number: several answers in one call. */
#include "nvml.h"

static nvmlReturn_t ecc_field(nvmlDevice_t device, unsigned int field, nvmlFieldValue_t *value)
{
    bool corrected = field == NVML_FI_DEV_ECC_SBE_VOL_TOTAL ||
                     field == NVML_FI_DEV_ECC_SBE_AGG_TOTAL ||
                     field == NVML_FI_DEV_ECC_SBE_VOL_DEV || field == NVML_FI_DEV_ECC_SBE_AGG_DEV;
    value->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    return nvml_ecc_errors(
        device, corrected ? NVML_MEMORY_ERROR_TYPE_CORRECTED : NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        &value->value.ullVal);
}

/* The scope of a field of one link is the link's number. */
static nvmlReturn_t link_field(nvmlDevice_t device, unsigned int field, nvmlFieldValue_t *value)
{
    nvmlEnableState_t active;
    if (field == NVML_FI_DEV_NVLINK_LINK_COUNT) {
        value->value.uiVal = nvml_link_count(device);
        return NVML_SUCCESS;
    }
    unsigned int link = field == NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON ? 0 : value->scopeId;
    CHECK(nvmlDeviceGetNvLinkState(device, link, &active));
    if (field == NVML_FI_DEV_NVLINK_GET_VERSION)
        return nvmlDeviceGetNvLinkVersion(device, link, &value->value.uiVal);
    value->value.uiVal = field == NVML_FI_DEV_NVLINK_GET_STATE ? (unsigned int)active
                         : active == NVML_FEATURE_ENABLED ? nvml_link_megabytes_per_second(device)
                                                          : 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t read_field(nvmlDevice_t device, nvmlFieldValue_t *value)
{
    unsigned int other, *number = &value->value.uiVal;
    value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    switch (value->fieldId) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING:
        *number = NVML_FEATURE_ENABLED;
        return NVML_SUCCESS;
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL:
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL:
    case NVML_FI_DEV_ECC_SBE_VOL_DEV:
    case NVML_FI_DEV_ECC_DBE_VOL_DEV:
    case NVML_FI_DEV_ECC_SBE_AGG_DEV:
    case NVML_FI_DEV_ECC_DBE_AGG_DEV:
        return ecc_field(device, value->fieldId, value);
    case NVML_FI_DEV_MEMORY_TEMP: /* no cooler and no hotter than the rest */
        return nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, number);
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
        value->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        return nvmlDeviceGetTotalEnergyConsumption(device, &value->value.ullVal);
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON:
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
    case NVML_FI_DEV_NVLINK_GET_SPEED:
    case NVML_FI_DEV_NVLINK_GET_STATE:
    case NVML_FI_DEV_NVLINK_GET_VERSION:
        return link_field(device, value->fieldId, value);
    case NVML_FI_DEV_POWER_AVERAGE: /* both are of the last window */
    case NVML_FI_DEV_POWER_INSTANT:
        return nvmlDeviceGetPowerUsage(device, number);
    case NVML_FI_DEV_POWER_MIN_LIMIT:
        return nvmlDeviceGetPowerManagementLimitConstraints(device, number, &other);
    case NVML_FI_DEV_POWER_MAX_LIMIT:
        return nvmlDeviceGetPowerManagementLimitConstraints(device, &other, number);
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
        return nvmlDeviceGetPowerManagementLimit(device, number);
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    NVML_CHECK(device, values);
    INVALID_IF(count <= 0);
    for (int i = 0; i < count; i++) {
        values[i].value.ullVal = 0;
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = read_field(device, &values[i]);
        values[i].timestamp = (long long)nvml_wall_clock_us(sim_now_ns());
    }
    return NVML_SUCCESS;
}
