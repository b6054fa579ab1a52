/* Host memory that the driver gives out or knows of, and what can be asked of a pointer. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags)
{
    struct CUctx_st *context;
    CUdeviceptr mapped;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || bytes == 0 || flags & ~7u)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_check_unsafe();
    if (result == CUDA_SUCCESS)
        result = memory_allocate(context, bytes, ALLOCATION_HOST, &mapped);
    if (result == CUDA_SUCCESS)
        *address = (void *)mapped;
    return result;
}

CUresult cuMemAllocHost_v2(void **address, size_t bytes)
{
    return cuMemHostAlloc(address, bytes, 0);
}

CUresult cuMemFreeHost(void *address)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    return result == CUDA_SUCCESS ? memory_free(context, (uint64_t)address, true) : result;
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return memory_insert((uint64_t)address, bytes, 0, ALLOCATION_REGISTERED, context, NULL)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void *address)
{
    DRIVER_CHECK();
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_locked((uint64_t)address, 1);
    if (allocation && allocation->kind == ALLOCATION_REGISTERED)
        allocation = memory_remove_locked((uint64_t)address);
    else
        allocation = NULL;
    pthread_mutex_unlock(&memory_mutex);
    if (!allocation)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    free(allocation);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *mapped, void *address, unsigned int flags)
{
    struct allocation found;
    DRIVER_CHECK();
    if (!mapped || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!memory_find((uint64_t)address, 1, &found))
        return CUDA_ERROR_INVALID_VALUE;
    *mapped = (CUdeviceptr)address;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *address)
{
    struct allocation found;
    DRIVER_CHECK();
    if (!flags || !memory_find((uint64_t)address, 1, &found) || found.kind != ALLOCATION_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = 2; /* CU_MEMHOSTALLOC_DEVICEMAP: with unified addresses always so */
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct allocation found;
    DRIVER_CHECK();
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!memory_find(address, 1, &found))
        return CUDA_ERROR_INVALID_VALUE;
    bool host = found.kind == ALLOCATION_HOST || found.kind == ALLOCATION_REGISTERED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = found.context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host && found.kind != ALLOCATION_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)value = (void *)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)value = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)value = found.id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)value = found.kind == ALLOCATION_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = found.context->device->ordinal;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = found.address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = found.bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)value = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = found.pool;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* As documented: attributes that a pointer does not have come back as zero, without an error. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr address)
{
    DRIVER_CHECK();
    if (!attributes || !values)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count; i++)
        if (cuPointerGetAttribute(values[i], attributes[i], address) != CUDA_SUCCESS && values[i])
            switch (attributes[i]) {
            case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            case CU_POINTER_ATTRIBUTE_MAPPED:
                *(unsigned int *)values[i] = 0;
                break;
            case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int *)values[i] = -2;
                break;
            default:
                *(uint64_t *)values[i] = 0;
            }
    return CUDA_SUCCESS;
}
