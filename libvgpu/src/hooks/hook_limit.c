/* Hook of a context's limits. What the printf buffer and the malloc heap take beyond their
 * defaults, and the stack of every thread that the device can hold at once, is device memory (the
 * defaults are part of what every context costs). The difference is reserved before the driver is
 * asked, corrected to the limit it then tells (it rounds), and given back with a lower limit or
 * with the context.
 *
 * The defaults are those of the device, read before this process changes the limit for the first
 * time. All of it under the lock of contexts: a context must not end meanwhile. */
#include <stdbool.h>
#include <stdint.h>

#include "compute/capture.h"
#include "hooks/hook.h"
#include "hooks/hook_context.h"
#include "memory/allocation_map.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define LIMITS 3 /* CU_LIMIT_STACK_SIZE, _PRINTF_FIFO_SIZE, _MALLOC_HEAP_SIZE */
#define KEY_SHIFT 2
#define ALLOCATION_BYTES 512

/* Both kept by a forked child, whose devices are the same. */
static uint64_t default_bytes[CONTEXT_DEVICES][LIMITS];
static bool is_default_known[CONTEXT_DEVICES][LIMITS];

static bool read_limit(CUlimit limit, uint64_t *bytes)
{
    size_t value = 0;
    struct capture_pause pause = capture_pause();
    CUresult result = real.cuCtxGetLimit(&value, limit);
    capture_resume(pause);
    *bytes = value;
    return result == CUDA_SUCCESS;
}

static uint64_t attribute(CUdevice_attribute attribute, CUdevice device)
{
    int value = 0;
    if (real.cuDeviceGetAttribute == NULL ||
        real.cuDeviceGetAttribute(&value, attribute, device) != CUDA_SUCCESS || value < 1)
        return 1;
    return (uint64_t)value;
}

/* Threads that the device holds at once, each with a stack of its own. */
static uint64_t thread_count(CUdevice device)
{
    return attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) *
           attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
}

/* What a limit of `value` takes beyond the default. */
static uint64_t cost(CUdevice device, CUlimit limit, uint64_t value)
{
    uint64_t bytes;
    if (value <= default_bytes[device][limit])
        return 0;
    uint64_t count = limit == CU_LIMIT_STACK_SIZE ? thread_count(device) : 1;
    if (__builtin_mul_overflow(value - default_bytes[device][limit], count, &bytes) ||
        bytes > UINT64_MAX - ALLOCATION_BYTES)
        return UINT64_MAX;
    return (bytes + ALLOCATION_BYTES - 1) / ALLOCATION_BYTES * ALLOCATION_BYTES;
}

/* The charge that stands for a limit of the current context, taken out of the map. */
static struct charge take_charge(int index, uint64_t key)
{
    struct allocation taken;
    struct charge charge = {.device = index, .kind = VGPU_KIND_OTHER};
    if (allocation_map_take(SPACE_LIMIT, key, &taken))
        charge = (struct charge){.device = taken.device, .kind = taken.kind, .bytes = taken.bytes};
    return charge;
}

static CUresult set(struct charge *charge, CUdevice device, CUlimit limit, size_t value,
                    uint64_t before)
{
    uint64_t held = charge->bytes;
    uint64_t now = value;
    uint64_t wanted = cost(device, limit, value);
    if (wanted > held && charge_resize(charge, wanted) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuCtxSetLimit(limit, value);
    if (result != CUDA_SUCCESS) {
        charge_resize(charge, held);
        return result;
    }
    read_limit(limit, &now);
    if (charge_resize(charge, cost(device, limit, now)) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    real.cuCtxSetLimit(limit, before);
    charge_resize(charge, held);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Of the current context, which is one of `device`. */
static CUresult charge_limit(CUcontext context, CUdevice device, CUlimit limit, size_t value)
{
    uint64_t before;
    int index = devices_find(device);
    if (index < 0 || !read_limit(limit, &before))
        return real.cuCtxSetLimit(limit, value); /* nothing can be made there, or set */
    if (!is_default_known[device][limit]) {
        default_bytes[device][limit] = before;
        is_default_known[device][limit] = true;
    }
    uint64_t key = charge_context(context) << KEY_SHIFT | (uint64_t)limit;
    struct charge charge = take_charge(index, key);
    CUresult result = set(&charge, device, limit, value, before);
    if (charge.bytes > 0)
        charge_keep(&charge, SPACE_LIMIT, key);
    return result;
}

VGPU_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    if (!cuda_has(&real.cuCtxSetLimit))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUcontext context = NULL;
    CUdevice device = 0;
    if ((unsigned int)limit >= LIMITS || region_open() != REGION_MAPPED ||
        real.cuCtxGetLimit == NULL || real.cuCtxGetCurrent == NULL || real.cuCtxGetDevice == NULL ||
        real.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL ||
        real.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 || device >= CONTEXT_DEVICES)
        return real.cuCtxSetLimit(limit, value);
    contexts_lock();
    CUresult result = charge_limit(context, device, limit, value);
    contexts_unlock();
    return result;
}
