/*
 * Stream-ordered allocation. A pool is a number of bytes charged on the device (reserved), of which
 * some are in use; a free leaves them reserved, for the next allocation. At a synchronisation of
 * stream, context or event, what is reserved beyond the release threshold (0 by default) and not in
 * use goes back to the device, and all of it when the device is short of memory.
 * A freed allocation's bytes are taken to be reusable at once: queues are in order, so whatever
 * uses them next runs later.
 */
#include <stdlib.h>

#include "driver.h"

void pool_initialise(struct CUmemPoolHandle_st *pool, struct driver_device *device)
{
    *pool = (struct CUmemPoolHandle_st){.magic = MAGIC_POOL, .device = device, .reuse = {1, 1, 1}};
}

static void trim_locked(struct CUmemPoolHandle_st *pool, uint64_t keep_bytes)
{
    uint64_t keep = pool->used_bytes > keep_bytes ? pool->used_bytes : keep_bytes;
    if (pool->reserved_bytes <= keep)
        return;
    sim_client_release(pool->device->device, pool->reserved_bytes - keep);
    pool->reserved_bytes = keep;
}

/* Only the pools in use now: an explicit pool that is not current keeps what it has. */
void pool_trim_device(struct driver_device *device, bool to_threshold)
{
    pthread_mutex_lock(&memory_mutex);
    struct CUmemPoolHandle_st *pools[] = {&device->pool, device->current_pool};
    for (int i = 0; i < 2; i++)
        trim_locked(pools[i], to_threshold ? pools[i]->threshold_bytes : 0);
    pthread_mutex_unlock(&memory_mutex);
}

void pool_give_back_locked(struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    pool->used_bytes -= bytes;
    if (pool->destroyed) {
        trim_locked(pool, 0);
        if (pool->used_bytes == 0)
            free(pool);
    }
}

static bool take_locked(struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
    uint64_t spare_bytes = pool->reserved_bytes - pool->used_bytes;
    uint64_t more_bytes = bytes > spare_bytes ? bytes - spare_bytes : 0;
    if (more_bytes &&
        sim_client_reserve(pool->device->device, more_bytes, pool->device->cap_bytes) != 0)
        return false;
    pool->reserved_bytes += more_bytes;
    pool->used_bytes += bytes;
    if (pool->reserved_bytes > pool->reserved_high_bytes)
        pool->reserved_high_bytes = pool->reserved_bytes;
    if (pool->used_bytes > pool->used_high_bytes)
        pool->used_high_bytes = pool->used_bytes;
    return true;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, struct CUmemPoolHandle_st *pool,
                         CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return capture_add_allocation(stream, pool, bytes, address);
    if (!pool)
        pool = stream->context->device->current_pool;
    uint64_t charged_bytes = memory_round(bytes);
    if (charged_bytes < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_mutex);
    bool taken = take_locked(pool, charged_bytes);
    pthread_mutex_unlock(&memory_mutex);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *mapped = memory_map(bytes);
    if (!mapped || !memory_insert((uint64_t)mapped, bytes, charged_bytes, ALLOCATION_POOL,
                                  stream->context, pool)) {
        if (mapped)
            memory_unmap(mapped, bytes);
        pthread_mutex_lock(&memory_mutex);
        pool_give_back_locked(pool, charged_bytes);
        pthread_mutex_unlock(&memory_mutex);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (CUdeviceptr)mapped;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return allocate(address, bytes, NULL, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    DRIVER_CHECK();
    if (!pool || pool->magic != MAGIC_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(address, bytes, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture)
        return capture_add_free(stream, address);
    if (!address)
        return CUDA_SUCCESS;
    return memory_free(stream->context, address, false);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static CUresult get_pool(CUmemoryPool *pool, CUdevice ordinal, bool default_one)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = default_one ? &device->pool : device->current_pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    return get_pool(pool, device, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return get_pool(pool, device, false);
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool || pool->magic != MAGIC_POOL || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    device->current_pool = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    DRIVER_CHECK();
    if (!pool || !properties || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct driver_device *device = device_of(properties->location.id);
    struct CUmemPoolHandle_st *created = device ? malloc(sizeof *created) : NULL;
    if (!created)
        return device ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_DEVICE;
    pool_initialise(created, device);
    *pool = created;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    DRIVER_CHECK();
    if (!pool || pool->magic != MAGIC_POOL || pool == &pool->device->pool)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_mutex);
    if (pool->device->current_pool == pool)
        pool->device->current_pool = &pool->device->pool;
    pool->magic = 0;
    pool->destroyed = true; /* freed with its last allocation */
    trim_locked(pool, 0);
    if (pool->used_bytes == 0)
        free(pool);
    pthread_mutex_unlock(&memory_mutex);
    return CUDA_SUCCESS;
}

static uint64_t *high_mark(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute)
{
    return attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ? &pool->reserved_high_bytes
           : attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH   ? &pool->used_high_bytes
                                                          : NULL;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    DRIVER_CHECK();
    if (!pool || pool->magic != MAGIC_POOL || !value)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory_mutex);
    if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
        attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        *(int *)value = pool->reuse[attribute - 1];
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *(uint64_t *)value = pool->threshold_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        *(uint64_t *)value = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        *(uint64_t *)value = pool->used_bytes;
    else if (high_mark(pool, attribute))
        *(uint64_t *)value = *high_mark(pool, attribute);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&memory_mutex);
    return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    DRIVER_CHECK();
    if (!pool || pool->magic != MAGIC_POOL || !value)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory_mutex);
    if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
        attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        pool->reuse[attribute - 1] = *(int *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold_bytes = *(uint64_t *)value;
    else if (high_mark(pool, attribute) && *(uint64_t *)value == 0) /* it may only be reset */
        *high_mark(pool, attribute) =
            attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used_bytes : pool->reserved_bytes;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&memory_mutex);
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep)
{
    DRIVER_CHECK();
    if (!pool || pool->magic != MAGIC_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_mutex);
    trim_locked(pool, bytes_to_keep);
    pthread_mutex_unlock(&memory_mutex);
    return CUDA_SUCCESS;
}
