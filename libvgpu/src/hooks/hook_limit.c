/* Hook of a context's limits. What the printf buffer and the malloc heap take beyond their
 * defaults, and the stack of every thread that the device can hold at once, is device memory (the
 * defaults are part of what every context costs). The stacks are local memory, which launches grow,
 * and have one charge with it (local_memory.h). The difference is reserved before the driver is
 * asked, corrected to the limit it then tells (it rounds), and given back with a lower limit or
 * with the context.
 *
 * The defaults are those of the device, read before this process changes the limit for the first
 * time. All of it under the lock of contexts: a context must not end meanwhile. */
#include <stdbool.h>
#include <stdint.h>

#include "driver/capture.h"
#include "hooks/hook.h"
#include "hooks/hook_context.h"
#include "memory/ledger/allocation_map.h"
#include "memory/local/local_memory.h"
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

/* What a limit of `value` takes beyond the default. */
static uint64_t cost(CUcontext context, CUdevice device, CUlimit limit, uint64_t value)
{
    if (limit == CU_LIMIT_STACK_SIZE)
        return local_memory_cost(context, value);
    if (value <= default_bytes[device][limit])
        return 0;
    uint64_t bytes = value - default_bytes[device][limit];
    if (bytes > UINT64_MAX - ALLOCATION_BYTES)
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

static CUresult set(struct charge *charge, CUcontext context, CUdevice device, CUlimit limit,
                    size_t value, uint64_t before)
{
    uint64_t held = charge->bytes;
    uint64_t now = value;
    uint64_t wanted = cost(context, device, limit, value);
    if (wanted > held && charge_resize(charge, wanted) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuCtxSetLimit(limit, value);
    if (result != CUDA_SUCCESS) {
        charge_resize(charge, held);
        return result;
    }
    read_limit(limit, &now);
    if (charge_resize(charge, cost(context, device, limit, now)) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    real.cuCtxSetLimit(limit, before);
    charge_resize(charge, held);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Its charge is that of local memory, which launches change, too. */
static CUresult set_stack(CUcontext context, CUdevice device, size_t value, uint64_t before)
{
    struct charge *charge = local_memory_charge(context);
    if (charge == NULL)
        return real.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, value);
    CUresult result = set(charge, context, device, CU_LIMIT_STACK_SIZE, value, before);
    if (result == CUDA_SUCCESS && read_limit(CU_LIMIT_STACK_SIZE, &before))
        local_memory_limit_set(context, before);
    return result;
}

/* Of the current context, which is one of `device`. */
static CUresult charge_limit(CUcontext context, CUdevice device, CUlimit limit, size_t value)
{
    uint64_t before;
    int index = devices_find(device);
    if (index < 0 || !read_limit(limit, &before))
        return real.cuCtxSetLimit(limit, value); /* nothing can be made there, or set */
    if (limit == CU_LIMIT_STACK_SIZE)
        return set_stack(context, device, value, before);
    if (!is_default_known[device][limit]) {
        default_bytes[device][limit] = before;
        is_default_known[device][limit] = true;
    }
    uint64_t key = charge_context(context) << KEY_SHIFT | (uint64_t)limit;
    struct charge charge = take_charge(index, key);
    CUresult result = set(&charge, context, device, limit, value, before);
    if (charge.bytes > 0)
        charge_keep(&charge, SPACE_LIMIT, key, NULL);
    return result;
}

VGPU_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    NEEDS(cuCtxSetLimit);
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
