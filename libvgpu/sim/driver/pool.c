/*
 * Stream-ordered allocation. A pool is a number of bytes charged on the device (reserved), in steps of
 * the calibration's `pool_granule_bytes`, of which some are in use; a free leaves them reserved, for the next allocation. At a synchronisation of
 * stream, context or event, what is reserved beyond the release threshold (0 by default) and not in
 * use goes back to the device, and all of it when the device is short of memory.
 * What was exported to another process goes back to the device when nobody holds it any more, and
 * is not kept. What a pool on the host reserves is charged nowhere. All pools are under
 * memory_mutex.
 * A freed allocation's bytes are taken to be reusable at once: queues are in order, so whatever
 * uses them next runs later.
 */
#include <stdlib.h>

#include "driver.h"

static struct CUmemPoolHandle_st *other_pools; /* other than the default ones */

void pool_initialise(struct CUmemPoolHandle_st *pool, struct driver_device *device)
{
    *pool = (struct CUmemPoolHandle_st){
        .magic = MAGIC_POOL,
        .device = device,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
        .reuse = {1, 1, 1}};
}

bool pool_valid(const struct CUmemPoolHandle_st *pool)
{
    return pool && pool->magic == MAGIC_POOL;
}

bool pool_on_host(const struct CUmemPoolHandle_st *pool)
{
    return pool->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

void pool_insert_locked(struct CUmemPoolHandle_st *pool)
{
    pool->next = other_pools;
    other_pools = pool;
}

static void free_locked(struct CUmemPoolHandle_st *pool)
{
    struct CUmemPoolHandle_st **at = &other_pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    free(pool);
}

static uint64_t round_to_granules(const struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    uint64_t step_bytes = pool->device->identity->profile.calibration.pool_granule_bytes;
    return bytes > UINT64_MAX - step_bytes ? UINT64_MAX
                                           : (bytes + step_bytes - 1) / step_bytes * step_bytes;
}

static void trim_locked(struct CUmemPoolHandle_st *pool, uint64_t keep_bytes)
{
    uint64_t keep =
        round_to_granules(pool, pool->used_bytes > keep_bytes ? pool->used_bytes : keep_bytes);
    if (pool->reserved_bytes <= keep)
        return;
    if (!pool_on_host(pool))
        sim_client_release(pool->device->device, pool->reserved_bytes - keep);
    pool->reserved_bytes = keep;
}

void pool_trim_device(struct driver_device *device, bool to_threshold)
{
    pthread_mutex_lock(&memory_mutex);
    trim_locked(&device->pool, to_threshold ? device->pool.threshold_bytes : 0);
    for (struct CUmemPoolHandle_st *pool = other_pools; pool; pool = pool->next)
        if (pool->device == device)
            trim_locked(pool, to_threshold ? pool->threshold_bytes : 0);
    pthread_mutex_unlock(&memory_mutex);
}

/* What was exported has been given back with what others have of it, so the pool does not keep it. */
void pool_give_back_locked(struct CUmemPoolHandle_st *pool, uint64_t bytes, bool shared)
{
    pool->used_bytes -= bytes;
    if (shared && !pool->imported)
        pool->reserved_bytes -= bytes;
    if (pool->destroyed) {
        trim_locked(pool, 0);
        if (pool->used_bytes == 0)
            free_locked(pool);
    }
}

void pool_give(struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    pthread_mutex_lock(&memory_mutex);
    pool_give_back_locked(pool, bytes, false);
    pthread_mutex_unlock(&memory_mutex);
}

static bool reserve(struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    if (pool->max_bytes &&
        (pool->reserved_bytes > pool->max_bytes || bytes > pool->max_bytes - pool->reserved_bytes))
        return false;
    return pool_on_host(pool) ||
           sim_client_reserve(pool->device->device, bytes, pool->device->cap_bytes) == 0;
}

static bool take_locked(struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    uint64_t spare_bytes = pool->reserved_bytes - pool->used_bytes;
    uint64_t more_bytes = bytes > spare_bytes ? bytes - spare_bytes : 0;
    uint64_t grown_bytes = round_to_granules(pool, pool->reserved_bytes + more_bytes);
    if (pool->max_bytes && grown_bytes > pool->max_bytes &&
        pool->reserved_bytes + more_bytes <= pool->max_bytes)
        grown_bytes = pool->max_bytes;
    if (more_bytes)
        more_bytes = grown_bytes - pool->reserved_bytes;
    if (more_bytes && !reserve(pool, more_bytes))
        return false;
    pool->reserved_bytes += more_bytes;
    pool->used_bytes += bytes;
    if (pool->reserved_bytes > pool->reserved_high_bytes)
        pool->reserved_high_bytes = pool->reserved_bytes;
    if (pool->used_bytes > pool->used_high_bytes)
        pool->used_high_bytes = pool->used_bytes;
    return true;
}

bool pool_take(struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    if (memory_attach(pool->device) != 0 ||
        (sim_machine_faulty(driver.machine) && fault_fails_allocation(pool->device)))
        return false;
    pthread_mutex_lock(&memory_mutex);
    bool taken = take_locked(pool, bytes);
    pthread_mutex_unlock(&memory_mutex);
    if (taken)
        return true;
    pool_trim_device(pool->device, false); /* what the others keep */
    pthread_mutex_lock(&memory_mutex);
    taken = take_locked(pool, bytes);
    pthread_mutex_unlock(&memory_mutex);
    return taken;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, struct CUmemPoolHandle_st *pool,
                         CUstream handle)
{
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!address || bytes == 0);
    if (stream_capture(stream))
        return capture_add_allocation(stream, pool, bytes, address);
    if (!pool)
        pool = stream->context->device->current_pool;
    uint64_t charged_bytes = memory_round(bytes);
    REFUSE_IF(charged_bytes < bytes || !pool_take(pool, charged_bytes), CUDA_ERROR_OUT_OF_MEMORY);
    void *mapped = memory_map(bytes);
    if (!mapped || !memory_insert((uint64_t)mapped, bytes, charged_bytes, ALLOCATION_POOL,
                                  stream->context, pool)) {
        if (mapped)
            memory_unmap(mapped, bytes, true);
        pool_give(pool, charged_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (CUdeviceptr)mapped;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    CALL_TAKES(cuMemAllocAsync);
    return allocate(address, bytes, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    CALL_TAKES(cuMemAllocAsync);
    DRIVER_CHECK();
    INVALID_IF(!pool_valid(pool) || pool->imported); /* only the exporter allocates */
    return allocate(address, bytes, pool, stream);
}

static void free_in_turn(void *address)
{
    memory_free_now((uint64_t)address, false);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    CALL_TAKES(cuMemFreeAsync);
    RESOLVE_STREAM(stream, handle);
    if (stream_capture(stream))
        return capture_add_free(stream, address);
    if (!address)
        return CUDA_SUCCESS;
    if (!stream_calls_pending())
        return memory_free_now(address, false);
    struct allocation found;
    INVALID_IF(!memory_find(address, 1, &found) || found.address != address ||
               !memory_is_freeable(&found, false));
    if (graph_memory_owns(&found)) /* which stays mapped */
        return memory_free_now(address, false);
    return stream_call(stream, free_in_turn, (void *)address);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static CUresult check_properties(const CUmemPoolProps *properties)
{
    switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        REFUSE_IF(!device_of(properties->location.id), CUDA_ERROR_INVALID_DEVICE);
        break;
    case CU_MEM_LOCATION_TYPE_HOST:
        INVALID_IF(properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE);
        break;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: /* which can be shared elsewhere, but not here */
        REFUSE_IF(properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
        break;
    case CU_MEM_LOCATION_TYPE_INVALID: /* the same number says that managed memory has no place */
        return properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ? CUDA_ERROR_NOT_SUPPORTED
                                                                       : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    INVALID_IF(properties->handleTypes &
               ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC));
    REFUSE_IF(properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED || properties->usage ||
                  properties->handleTypes & CU_MEM_HANDLE_TYPE_FABRIC,
              CUDA_ERROR_NOT_SUPPORTED);
    return properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    DRIVER_CHECK();
    CHECK(pool && properties ? check_properties(properties) : CUDA_ERROR_INVALID_VALUE);
    struct CUmemPoolHandle_st *created = malloc(sizeof *created);
    REFUSE_IF(!created, CUDA_ERROR_OUT_OF_MEMORY);
    bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    pool_initialise(created, on_device ? device_of(properties->location.id) : &driver.devices[0]);
    created->location = properties->location;
    created->handle_types = properties->handleTypes;
    created->max_bytes = properties->maxSize;
    pthread_mutex_lock(&memory_mutex);
    pool_insert_locked(created);
    pthread_mutex_unlock(&memory_mutex);
    *pool = created;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    DRIVER_CHECK();
    INVALID_IF(!pool_valid(pool) || pool == &pool->device->pool || pool_host_owns(pool));
    pthread_mutex_lock(&memory_mutex);
    if (pool->device->current_pool == pool)
        pool->device->current_pool = &pool->device->pool;
    pool_host_forget_locked(pool);
    pool->magic = 0;
    pool->destroyed = true; /* freed with its last allocation */
    trim_locked(pool, 0);
    if (pool->used_bytes == 0)
        free_locked(pool);
    pthread_mutex_unlock(&memory_mutex);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep)
{
    DRIVER_CHECK();
    INVALID_IF(!pool_valid(pool));
    CHECK(capture_check_unsafe());
    pthread_mutex_lock(&memory_mutex);
    trim_locked(pool, bytes_to_keep);
    pthread_mutex_unlock(&memory_mutex);
    return CUDA_SUCCESS;
}
