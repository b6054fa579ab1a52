/* What a device keeps for graphs: asking, and giving back what none of them uses. */
#include "graph_memory.h"

CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    struct CUmemPoolHandle_st *pool = graph_memory_lock(device);
    graph_memory_leave_idle_locked(device);
    if (pool->reserved_bytes > pool->used_bytes)
        sim_client_release(device->device, pool->reserved_bytes - pool->used_bytes);
    pool->reserved_bytes = pool->used_bytes;
    graph_memory_unlock();
    return CUDA_SUCCESS;
}

static CUresult attribute_of_locked(struct CUmemPoolHandle_st *pool, CUgraphMem_attribute attribute,
                                    uint64_t **value)
{
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *value = &pool->used_bytes;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *value = &pool->used_high_bytes;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *value = &pool->reserved_bytes;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *value = &pool->reserved_high_bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    uint64_t *bytes;
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    INVALID_IF(!value);
    CUresult result = attribute_of_locked(graph_memory_lock(device), attribute, &bytes);
    if (result == CUDA_SUCCESS)
        *(uint64_t *)value = *bytes;
    graph_memory_unlock();
    return result;
}

/* The high marks may be set back, which the documentation calls setting them to 0: they then begin
 * again at what there is now. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    INVALID_IF(!value || *(uint64_t *)value != 0);
    CUresult result = CUDA_SUCCESS;
    struct CUmemPoolHandle_st *pool = graph_memory_lock(device);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        pool->used_high_bytes = pool->used_bytes;
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high_bytes = pool->reserved_bytes;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    graph_memory_unlock();
    return result;
}
