/* Host memory that the driver gives out or knows of. */
#include <stdlib.h>
#include <sys/mman.h>

#include "driver.h"

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags)
{
    CALL_TAKES(cuMemAllocHost);
    CUdeviceptr mapped;
    CURRENT_CONTEXT(context);
    INVALID_IF(!address || bytes == 0 ||
               flags & ~(unsigned int)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                                       CU_MEMHOSTALLOC_WRITECOMBINED));
    CHECK(capture_check_unsafe());
    CHECK(memory_allocate(context, bytes, ALLOCATION_HOST, &mapped));
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_locked(mapped, 1);
    if (allocation) /* else its context ended meanwhile */
        allocation->flags = flags;
    pthread_mutex_unlock(&memory_mutex);
    *address = (void *)mapped;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **address, size_t bytes)
{
    CALL_TAKES(cuMemAllocHost);
    return cuMemHostAlloc(address, bytes, 0);
}

CUresult cuMemFreeHost(void *address)
{
    CALL_TAKES(cuMemFreeHost);
    CUresult result = memory_check_free((uint64_t)address);
    return result == CUDA_SUCCESS && address ? memory_free((uint64_t)address, true) : result;
}

#define REGISTER_FLAGS 0xfu /* portable, device map, I/O memory, read only */

/* Whether all of a range is mapped in this process. */
static bool mapped_whole(const void *address, size_t bytes)
{
    uint64_t start = (uint64_t)address / SIM_PAGE * SIM_PAGE;
    return (uint64_t)address + bytes > (uint64_t)address &&
           msync((void *)start, (uint64_t)address + bytes - start, MS_ASYNC) == 0;
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!address || bytes == 0 || flags & ~REGISTER_FLAGS || !mapped_whole(address, bytes));
    return memory_insert((uint64_t)address, bytes, 0, ALLOCATION_REGISTERED, context, NULL)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostRegister(void *address, size_t bytes, unsigned int flags)
{
    return cuMemHostRegister_v2(address, bytes, flags);
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
    free(allocation);
    return allocation ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *mapped, void *address, unsigned int flags)
{
    struct allocation found;
    DRIVER_CHECK();
    INVALID_IF(!mapped || flags);
    INVALID_IF(!memory_find((uint64_t)address, 1, &found));
    *mapped = (CUdeviceptr)address;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *address)
{
    struct allocation found;
    DRIVER_CHECK();
    INVALID_IF(!flags || !memory_find((uint64_t)address, 1, &found) ||
               found.kind != ALLOCATION_HOST);
    /* with unified addresses all of it is portable and mapped, whether asked for or not */
    *flags = found.flags | CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
