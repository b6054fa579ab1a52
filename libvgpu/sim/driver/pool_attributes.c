/* Which pools a device has, and what can be asked of a pool and set. */
#include "driver.h"

static CUresult get_pool(CUmemoryPool *pool, CUdevice ordinal, bool default_one)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    INVALID_IF(!pool);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
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
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    INVALID_IF(!pool_valid(pool) || pool->device != device || pool_on_host(pool) || pool->imported);
    device->current_pool = pool;
    return CUDA_SUCCESS;
}

/* The forms of CUDA 13, by location. Managed memory has no pools here. */
static CUresult check_place(const CUmemLocation *location, CUmemAllocationType type)
{
    INVALID_IF(!location ||
               (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED));
    bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return managed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_INVALID: /* the same number says that managed memory has no place */
        return managed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_pool_of_place(CUmemoryPool *pool, const CUmemLocation *location,
                                  CUmemAllocationType type, bool default_one)
{
    DRIVER_CHECK();
    CHECK(check_place(location, type));
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE
               ? get_pool(pool, location->id, default_one)
               : pool_host_get(pool, location, default_one);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type)
{
    return get_pool_of_place(pool, location, type, true);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    return get_pool_of_place(pool, location, type, false);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    DRIVER_CHECK();
    CHECK(check_place(location, type));
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? cuDeviceSetMemPool(location->id, pool)
                                                         : pool_host_set(location, pool);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static uint64_t *high_mark(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute)
{
    return attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ? &pool->reserved_high_bytes
           : attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH   ? &pool->used_high_bytes
                                                          : NULL;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    DRIVER_CHECK();
    INVALID_IF(!pool_valid(pool) || !value);
    CHECK(capture_check_unsafe());
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
    else if (attribute == CU_MEMPOOL_ATTR_ALLOCATION_TYPE)
        *(CUmemAllocationType *)value = CU_MEM_ALLOCATION_TYPE_PINNED;
    else if (attribute == CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES)
        *(CUmemAllocationHandleType *)value = pool->handle_types; /* an imported one has none */
    else if (attribute == CU_MEMPOOL_ATTR_LOCATION_ID)
        *(int *)value = pool->location.id;
    else if (attribute == CU_MEMPOOL_ATTR_LOCATION_TYPE)
        *(CUmemLocationType *)value = pool->location.type;
    else if (attribute == CU_MEMPOOL_ATTR_MAX_POOL_SIZE)
        *(uint64_t *)value = pool->max_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED)
        *(int *)value = 0;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&memory_mutex);
    return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    DRIVER_CHECK();
    INVALID_IF(!pool_valid(pool) || !value);
    CHECK(capture_check_unsafe());
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

/* ---- access of other devices ----------------------------------------------------------------- */

/* Whoever holds the bytes can always reach them; another device where peers can at all. */
static CUresult set_access(struct CUmemPoolHandle_st *pool, const CUmemAccessDesc *entry,
                           bool only_check)
{
    int reachable = 1;
    bool readwrite = entry->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    INVALID_IF(!readwrite && entry->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
               entry->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
    INVALID_IF(entry->location.type != CU_MEM_LOCATION_TYPE_DEVICE);
    REFUSE_IF(!device_of(entry->location.id), CUDA_ERROR_INVALID_DEVICE);
    if (!pool_on_host(pool) && pool->device->ordinal == entry->location.id)
        return readwrite ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; /* its own cannot be taken */
    if (!pool_on_host(pool))
        cuDeviceCanAccessPeer(&reachable, entry->location.id, pool->device->ordinal);
    REFUSE_IF(!reachable, CUDA_ERROR_INVALID_DEVICE);
    if (!only_check)
        pool->peers[entry->location.id] = (unsigned char)entry->flags;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *entries, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    DRIVER_CHECK();
    INVALID_IF(!pool_valid(pool) || (count && !entries));
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = set_access(pool, &entries[i], true);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        set_access(pool, &entries[i], false);
    return result;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    DRIVER_CHECK();
    INVALID_IF(!flags || !pool_valid(pool) || !location);
    if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
        location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        *flags =
            pool_on_host(pool) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    }
    INVALID_IF(location->type != CU_MEM_LOCATION_TYPE_DEVICE);
    REFUSE_IF(!device_of(location->id), CUDA_ERROR_INVALID_DEVICE);
    bool own = !pool_on_host(pool) && pool->device->ordinal == location->id;
    *flags =
        own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : (CUmemAccess_flags)pool->peers[location->id];
    return CUDA_SUCCESS;
}
