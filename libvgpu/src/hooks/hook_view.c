/* Hooks that show the slice in place of the GPU: memory totals of the driver and of NVML. Whoever
 * only looks claims no slot. A GPU that the slice does not name gives nothing, and where there should
 * be a slice and it cannot be read, no GPU does. */
#include "hooks/hook.h"
#include "hooks/hook_nvml.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/block.h"
#include "slice/devices.h"
#include "slice/ledger.h"
#include "slice/limits_file.h"
#include "slice/region.h"

/* All that a GPU shows which gives nothing, and all of it is used: tools divide by the total. */
#define NOTHING_BYTES (2u << 20)

/* What a program of this container should see of one device. */
struct view {
    uint64_t total_bytes;
    uint64_t used_bytes;
    uint64_t free_bytes;
};

/* True when more may be held than the GPU has for the slice: the rest is kept in host memory. */
static bool is_overcommitted(uint32_t device)
{
    const struct vgpu_device_limit *limit = limits_device(region_limits(), device);
    return limit->physical_bytes != 0 && limit->physical_bytes < limit->memory_limit_bytes;
}

static int shown_cuda_device(CUdevice device)
{
    return region_open() == REGION_MAPPED ? devices_find(device) : DEVICE_NOT_OURS;
}

/* The slice of `device` (an index in `limits`, or not ours: nothing). Free is also bounded by what
 * the GPU itself has left. After a lowered limit more is used than there is in all: so it says. */
static struct view view_of(int device, uint64_t physical_free_bytes)
{
    struct view view = {.total_bytes = NOTHING_BYTES, .used_bytes = NOTHING_BYTES};
    if (device < 0)
        return view;
    struct ledger ledger = region_ledger((uint32_t)device);
    ledger_sweep(&ledger); /* programs size their pools by what this shows */
    view.total_bytes = ledger_limit_bytes(&ledger);
    view.used_bytes = ledger_used_bytes(&ledger);
    if (view.used_bytes < view.total_bytes)
        view.free_bytes = view.total_bytes - view.used_bytes;
    if (view.free_bytes > physical_free_bytes && !is_overcommitted((uint32_t)device))
        view.free_bytes = physical_free_bytes;
    uint64_t block_bytes = block_known_bytes((uint32_t)device);
    if (block_bytes > BLOCK_STEP_BYTES) /* what can still be had in one piece */
        view.free_bytes -= view.free_bytes % block_bytes;
    return view;
}

/* The forms of CUDA 3 and before say at most what 32 bits hold, as the driver does. */
static unsigned int narrow(uint64_t bytes)
{
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)bytes;
}

#define MEMORY_INFO(symbol, size, fitted) \
    VGPU_EXPORT CUresult symbol(size *free_bytes, size *total_bytes) \
    { \
        NEEDS(symbol); \
        reconcile_quiet(); /* programs size their pools by what this shows */ \
        CUresult result = real.symbol(free_bytes, total_bytes); \
        if (result != CUDA_SUCCESS || region_open() == REGION_NONE) \
            return result; \
        int device = region_open() == REGION_MAPPED ? devices_current() : DEVICE_NOT_OURS; \
        struct view view = view_of(device, OUTPUT(free_bytes)); \
        ANSWER(free_bytes, fitted(view.free_bytes)); \
        ANSWER(total_bytes, fitted(view.total_bytes)); \
        return CUDA_SUCCESS; \
    }

#define TOTAL_MEMORY(symbol, size, fitted) \
    VGPU_EXPORT CUresult symbol(size *bytes, CUdevice device) \
    { \
        NEEDS(symbol); \
        CUresult result = real.symbol(bytes, device); \
        if (result == CUDA_SUCCESS && region_open() != REGION_NONE) \
            ANSWER(bytes, fitted(view_of(shown_cuda_device(device), 0).total_bytes)); \
        return result; \
    }

MEMORY_INFO(cuMemGetInfo_v2, size_t, (size_t))
MEMORY_INFO(cuMemGetInfo, unsigned int, narrow)
TOTAL_MEMORY(cuDeviceTotalMem_v2, size_t, (size_t))
TOTAL_MEMORY(cuDeviceTotalMem, unsigned int, narrow)

/* The same for NVML, which also says what is used. A total that a tenant's program has spoilt must
 * not show more than there can be. */
static struct view view_of_nvml(nvmlDevice_t handle, uint64_t physical_bytes,
                                uint64_t physical_free_bytes)
{
    struct view view = view_of(shown_device(handle), physical_free_bytes);
    uint64_t most = view.total_bytes > physical_bytes ? view.total_bytes : physical_bytes;
    if (view.used_bytes > most)
        view.used_bytes = most;
    return view;
}

#define NVML_MEMORY(symbol, type, more) \
    VGPU_EXPORT nvmlReturn_t symbol(nvmlDevice_t device, type *memory) \
    { \
        NVML_NEEDS(symbol); \
        nvmlReturn_t result = real.symbol(device, memory); \
        if (result != NVML_SUCCESS || memory == NULL || region_open() == REGION_NONE) \
            return result; \
        struct view view = view_of_nvml(device, memory->total, memory->free); \
        memory->total = view.total_bytes; \
        memory->used = view.used_bytes; \
        memory->free = view.free_bytes; \
        more; \
        return NVML_SUCCESS; \
    }

NVML_MEMORY(nvmlDeviceGetMemoryInfo, nvmlMemory_t, (void)0)
NVML_MEMORY(nvmlDeviceGetMemoryInfo_v2, nvmlMemory_v2_t,
            memory->reserved = 0) /* the card's own reserve is in no slice */
