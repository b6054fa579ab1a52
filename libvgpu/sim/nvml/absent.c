/*
 * The functions that this library has and does not do: one under all their names. Whatever it is
 * asked, it says so; most of them are asked of a device first, and that may be lost.
 */
#include "nvml.h"

nvmlReturn_t nvml_absent_entry(nvmlDevice_t first);

nvmlReturn_t nvml_absent_entry(nvmlDevice_t first)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    return nvml_is_device(first) && nvml_is_lost(first) ? NVML_ERROR_GPU_IS_LOST
                                                        : NVML_ERROR_NOT_SUPPORTED;
}

#define ENTRY(symbol, since)
#define ABSENT(symbol, since) \
    __attribute__((visibility("default"), alias("nvml_absent_entry"))) nvmlReturn_t symbol( \
        nvmlDevice_t first);
#include "entries.def"
