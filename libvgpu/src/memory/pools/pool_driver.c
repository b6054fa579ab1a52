/* What the driver keeps for a pool, and the charge that follows it: see pool.h. Our calls are made
 * so that a capture under way is not disturbed. */
#include "driver/capture.h"
#include "driver/real.h"
#include "memory/pools/pool_state.h"
#include "vgpu/contract.h"

#define MOST_STEP_BYTES (32u << 20)

/* Atomic: the largest steps in which pools of a device were seen to grow. A forked child's are the same. */
static uint64_t seen_step_bytes[VGPU_MAX_DEVICES];

/* Asks the driver for one of the two figures of a pool (of graphs only for what is reserved), less
 * what is charged elsewhere. False where nobody can be asked. */
static bool ask(const struct pool *pool, bool reserved, uint64_t *result_bytes)
{
    uint64_t bytes = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    struct capture_pause pause = capture_pause();
    if (pool->form == POOL_OF_GRAPHS && real.cuDeviceGetGraphMemAttribute != NULL)
        result = real.cuDeviceGetGraphMemAttribute(pool->ordinal,
                                                   CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    else if (pool->form == POOL_OF_STREAMS && real.cuMemPoolGetAttribute != NULL)
        result = real.cuMemPoolGetAttribute(pool->handle,
                                            reserved ? CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
                                                     : CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                            &bytes);
    capture_resume(pause);
    if (result == CUDA_SUCCESS)
        *result_bytes = bytes > pool->elsewhere_bytes ? bytes - pool->elsewhere_bytes : 0;
    return result == CUDA_SUCCESS;
}

bool pool_ask_reserved(const struct pool *pool, uint64_t *bytes)
{
    return ask(pool, true, bytes);
}

/* Where the driver does not say the charge stays as it is. */
static uint64_t reserved_bytes(const struct pool *pool)
{
    uint64_t bytes;
    return ask(pool, true, &bytes) ? bytes : pool->charged_bytes;
}

uint64_t pool_used_bytes(const struct pool *pool)
{
    uint64_t bytes;
    /* what a graph has been given counts as used until it is trimmed or given to another one, also
     * when no launch is under way (seen on an H100) */
    if (pool->form == POOL_OF_GRAPHS)
        return pool->charged_bytes;
    return ask(pool, false, &bytes) ? bytes : pool->used_bytes;
}

uint64_t pool_ask_step(CUdevice ordinal)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                      .location.id = ordinal};
    size_t bytes = 0;
    struct capture_pause pause = capture_pause();
    if (real.cuMemGetAllocationGranularity == NULL ||
        real.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
            CUDA_SUCCESS)
        bytes = 0;
    capture_resume(pause);
    return bytes > LEAST_STEP_BYTES ? bytes : LEAST_STEP_BYTES;
}

uint64_t pool_likely_step(int device)
{
    uint64_t seen_bytes =
        device >= 0 ? __atomic_load_n(&seen_step_bytes[device], __ATOMIC_RELAXED) : 0;
    return seen_bytes > LEAST_STEP_BYTES ? seen_bytes : LEAST_STEP_BYTES;
}

void pool_note_steps(struct pool *pool, uint64_t reserved)
{
    uint64_t step = reserved & -reserved;
    if (step > MOST_STEP_BYTES)
        step = MOST_STEP_BYTES;
    if (step > pool->step_bytes)
        pool->step_bytes = step;
    /* A race of two threads loses a guess. */
    if (pool->device >= 0 && step > pool_likely_step(pool->device))
        __atomic_store_n(&seen_step_bytes[pool->device], step, __ATOMIC_RELAXED);
}

void pool_shrink_charge(struct pool *pool, uint64_t bytes)
{
    if (bytes >= pool->charged_bytes)
        return;
    charge_cancel(&(struct charge){
        .device = pool->device, .kind = VGPU_KIND_ASYNC, .bytes = pool->charged_bytes - bytes});
    pool->charged_bytes = bytes;
}

void pool_follow_driver(struct pool *pool)
{
    uint64_t bytes = reserved_bytes(pool);
    if (bytes > pool->charged_bytes) { /* it is taken already */
        struct charge more;
        charge_force(&more, pool->device, VGPU_KIND_ASYNC, bytes - pool->charged_bytes);
        pool->charged_bytes = bytes;
    }
    pool_shrink_charge(pool, bytes);
}

void pool_trim(struct pool *pool)
{
    struct capture_pause pause = capture_pause();
    pool->epoch++;
    if (pool->form == POOL_OF_GRAPHS && real.cuDeviceGraphMemTrim != NULL)
        real.cuDeviceGraphMemTrim(pool->ordinal);
    else if (pool->form == POOL_OF_STREAMS && real.cuMemPoolTrimTo != NULL)
        real.cuMemPoolTrimTo(pool->handle, 0);
    capture_resume(pause);
}
