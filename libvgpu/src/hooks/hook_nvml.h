/* What every hook of NVML begins with. */
#ifndef VGPU_HOOK_NVML_H
#define VGPU_HOOK_NVML_H

#include <stdbool.h>
#include <stddef.h>

#include "driver/export.h"
#include "driver/real.h"
#include "hooks/output.h"
#include "slice/devices.h"
#include "slice/region.h"

/* NVML_SUCCESS when NVML is there and has the function whose field of `real` this is: it has, or the
 * program could not have found the hook. Else what the hook returns. */
static inline nvmlReturn_t nvml_lacks(const void *field)
{
    if (!real_load_nvml())
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    return *(void *const *)field == NULL ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_SUCCESS;
}

/* The first line of a hook: ends it where NVML lacks the function. */
#define NVML_NEEDS(symbol) \
    do { \
        nvmlReturn_t lack = nvml_lacks(&real.symbol); \
        if (lack != NVML_SUCCESS) \
            return lack; \
    } while (0)

/* The device of the slice that a handle stands for, or DEVICE_NOT_OURS: also where there should be
 * a slice and it cannot be read. Asked when region_open does not say REGION_NONE. */
static inline int shown_device(nvmlDevice_t handle)
{
    return region_open() == REGION_MAPPED ? devices_find_nvml(handle) : DEVICE_NOT_OURS;
}

/* True when a call that was made with no room for its answer was itself in order. */
static inline bool is_answerable(nvmlReturn_t result)
{
    return result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE ||
           result == NVML_ERROR_NOT_FOUND;
}

#endif
