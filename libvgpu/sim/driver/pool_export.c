/* Pools between processes. The descriptor of a pool carries only its identity; each allocation is
 * exported by itself (ipc.h), and may be imported where its pool was. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc.h"

/* Gives the pool the identity by which other processes know it. */
static bool identify(struct CUmemPoolHandle_st *pool)
{
    uint64_t made = 0;
    /* glibc has had a name for it since 2.25, Linux the call since 3.17 */
    if (syscall(SYS_getrandom, &made, sizeof made, 0) != sizeof made)
        return false;
    pthread_mutex_lock(&memory_mutex);
    if (!pool->identifier)
        pool->identifier = made | 1; /* never 0 */
    pthread_mutex_unlock(&memory_mutex);
    return true;
}

CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool,
                                          CUmemAllocationHandleType type, unsigned long long flags)
{
    struct shareable_file file;
    DRIVER_CHECK();
    INVALID_IF(!shareable || flags || !pool_valid(pool));
    REFUSE_IF(type == CU_MEM_HANDLE_TYPE_FABRIC, CUDA_ERROR_NOT_SUPPORTED);
    INVALID_IF(type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(pool->handle_types & type));
    REFUSE_IF(!identify(pool) || !shareable_file_create(&file, SIM_PAGE), CUDA_ERROR_OUT_OF_MEMORY);
    if (!shareable_record_write(&file, SHARE_RECORD_POOL, pool->device, 0, pool->identifier)) {
        shareable_file_close(&file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *(int *)shareable = file.descriptor; /* the caller's from now on */
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    struct shareable_record record;
    DRIVER_CHECK();
    REFUSE_IF(type == CU_MEM_HANDLE_TYPE_FABRIC, CUDA_ERROR_NOT_SUPPORTED);
    INVALID_IF(!pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    struct driver_device *device =
        shareable_record_read((int)(intptr_t)shareable, SHARE_RECORD_POOL, &record);
    INVALID_IF(!device);
    struct CUmemPoolHandle_st *imported = malloc(sizeof *imported);
    REFUSE_IF(!imported, CUDA_ERROR_OUT_OF_MEMORY);
    pool_initialise(imported, device);
    imported->imported = true;
    imported->identifier = record.identifier;
    pthread_mutex_lock(&memory_mutex);
    pool_insert_locked(imported);
    pthread_mutex_unlock(&memory_mutex);
    *pool = imported;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *exported, CUdeviceptr address)
{
    struct allocation found;
    struct ipc_handle handle;
    DRIVER_CHECK();
    INVALID_IF(!exported || !memory_find(address, 1, &found) || found.kind != ALLOCATION_POOL ||
               !found.pool->identifier); /* documented: from a pool that was shared already */
    CUresult result = ipc_export(address, ALLOCATION_POOL, &handle);
    if (result == CUDA_SUCCESS)
        memcpy(exported, &handle, sizeof handle);
    return result == CUDA_ERROR_MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool,
                                CUmemPoolPtrExportData *exported)
{
    struct ipc_handle handle;
    DRIVER_CHECK();
    INVALID_IF(!address || !exported || !pool_valid(pool) || !pool->imported);
    memcpy(&handle, exported, sizeof handle);
    INVALID_IF(ipc_device(&handle) != pool->device || handle.pool != pool->identifier);
    uint64_t bytes = memory_round(handle.bytes);
    pthread_mutex_lock(&memory_mutex);
    pool->used_bytes += bytes; /* so that the pool stays while its allocations do */
    pthread_mutex_unlock(&memory_mutex);
    CUresult result =
        ipc_open(&handle, ALLOCATION_POOL_OPENED, &pool->device->primary, pool, address);
    if (result != CUDA_SUCCESS)
        pool_give(pool, bytes);
    return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE
           : result == CUDA_ERROR_MAP_FAILED   ? CUDA_ERROR_OUT_OF_MEMORY
                                               : result;
}
