/* CUDA IPC of memory: cuIpcGetMemHandle and what opens and closes it elsewhere. */
#include <string.h>
#include <unistd.h>

#include "ipc.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    struct ipc_handle made;
    CURRENT_CONTEXT(context);
    INVALID_IF(!handle);
    /* an address inside an allocation stands for the whole, as libraries count on that export what
     * they carved out of it; memory of pools, managed and opened memory is refused */
    CHECK(ipc_export(address, ALLOCATION_DEVICE, &made));
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

/* Where this context has it open already, counts that once more. */
static bool open_again(struct CUctx_st *context, const struct driver_device *device,
                       const struct ipc_handle *handle, CUdeviceptr *address)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *found =
        memory_find_opened_locked(context, device, handle->shared_id, handle->offset);
    if (found) {
        found->shared->opened++;
        *address = found->address;
    }
    pthread_mutex_unlock(&memory_mutex);
    return found != NULL;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle opaque, unsigned int flags)
{
    struct ipc_handle handle;
    int can_reach = 1;
    CURRENT_CONTEXT(context);
    INVALID_IF(!address || flags & ~(unsigned int)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    memcpy(&handle, &opaque, sizeof handle);
    struct driver_device *device = ipc_device(&handle);
    REFUSE_IF(!device || handle.pool, CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(handle.pid == (uint32_t)getpid() && shared_held(device, handle.shared_id),
              CUDA_ERROR_INVALID_CONTEXT); /* the exporter itself; seen of real drivers */
    if (device != context->device)
        cuDeviceCanAccessPeer(&can_reach, context->device->ordinal, device->ordinal);
    REFUSE_IF(!can_reach, CUDA_ERROR_MAP_FAILED);
    if (open_again(context, device, &handle, address))
        return CUDA_SUCCESS;
    return ipc_open(&handle, ALLOCATION_OPENED, context, NULL, address);
}

/* The form of before CUDA 11 was the same. */
CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    CURRENT_CONTEXT(context);
    CHECK(stream_calls_settle());
    pthread_mutex_lock(&memory_mutex);
    struct allocation *found = memory_find_locked(address, 1);
    bool opened = found && found->address == address && found->kind == ALLOCATION_OPENED;
    bool last = opened && --found->shared->opened == 0;
    pthread_mutex_unlock(&memory_mutex);
    if (last)
        memory_forget(address);
    return opened ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
