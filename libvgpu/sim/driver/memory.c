/*
 * Charging, allocating and freeing device memory. Where the calibration has the GPU give memory in
 * blocks, all of this is theirs (block.h); else what is charged is what was asked, rounded up to
 * DRIVER_ALLOCATION_ROUND. Managed memory is charged whole, as if all of it were on the device, or
 * as it is touched (managed_touch.c).
 * Unlike on many real drivers cuMemFree does not wait for the device.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "call_cost.h"
#include "driver.h"
#include "external.h"
#include "ipc.h"
#include "managed.h"

#define PITCH_ALIGNMENT 512

pthread_rwlock_t memory_bytes_lock = PTHREAD_RWLOCK_INITIALIZER;

uint64_t memory_round(uint64_t bytes)
{
    return (bytes + DRIVER_ALLOCATION_ROUND - 1) / DRIVER_ALLOCATION_ROUND *
           DRIVER_ALLOCATION_ROUND;
}

int memory_attach(struct driver_device *device)
{
    if (__atomic_load_n(&device->device->attached, __ATOMIC_ACQUIRE))
        return 0;
    struct sim_client_options options = device_client_options(device);
    return sim_client_attach(device->device, &options);
}

int memory_charge(struct driver_device *device, uint64_t bytes)
{
    int attached = memory_attach(device); /* handles and pools do without a context */
    if (attached != 0)
        return attached;
    return memory_fails(device) ? -ENOMEM : memory_reserve(device, bytes);
}

bool memory_fails(struct driver_device *device)
{
    return sim_machine_faulty(driver.machine) && fault_fails_allocation(device);
}

int memory_reserve(struct driver_device *device, uint64_t bytes)
{
    int error = sim_client_reserve(device->device, bytes, device->cap_bytes);
    if (error == -ENOMEM) {
        pool_trim_device(device, false);
        error = sim_client_reserve(device->device, bytes, device->cap_bytes);
    }
    return error;
}

static bool on_device(enum allocation_kind kind)
{
    return kind == ALLOCATION_DEVICE || kind == ALLOCATION_MANAGED || kind == ALLOCATION_ARRAY ||
           kind == ALLOCATION_OWN || kind == ALLOCATION_OWN_MANAGED;
}

/* The host's time for blocks that the device gave or has again. */
static void blocks_take_time(const struct CUctx_st *context, uint64_t moved_bytes)
{
    const struct sim_calibration *calibration = &context->device->identity->profile.calibration;
    if (moved_bytes)
        call_takes_longer(calibration->block_ns + (moved_bytes / calibration->block_bytes - 1) *
                                                      calibration->further_block_ns);
}

static CUresult allocate_in_blocks(struct CUctx_st *context, uint64_t bytes,
                                   enum allocation_kind kind, CUdeviceptr *address)
{
    struct block *block;
    uint64_t moved_bytes;
    bool later = (kind == ALLOCATION_MANAGED || kind == ALLOCATION_OWN_MANAGED) &&
                 context->device->identity->profile.calibration.managed_as_touched;
    REFUSE_IF(memory_attach(context->device) != 0, CUDA_ERROR_OUT_OF_MEMORY);
    if (later)
        managed_touch_expect();
    CHECK(block_take(context, bytes, !later, &block, address, &moved_bytes));
    if (kind == ALLOCATION_DEVICE)
        blocks_take_time(context, moved_bytes);
    if (memory_insert_piece(*address, bytes, kind, context, block))
        return CUDA_SUCCESS;
    block_give(block, *address, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult memory_allocate(struct CUctx_st *context, uint64_t bytes, enum allocation_kind kind,
                         CUdeviceptr *address)
{
    if (on_device(kind) && block_wanted(context->device))
        return allocate_in_blocks(context, bytes, kind, address);
    uint64_t charged_bytes = on_device(kind) ? memory_round(bytes) : 0;
    /* wrapped round */
    REFUSE_IF(charged_bytes < bytes && on_device(kind), CUDA_ERROR_OUT_OF_MEMORY);
    REFUSE_IF(charged_bytes && memory_charge(context->device, charged_bytes) != 0,
              CUDA_ERROR_OUT_OF_MEMORY);
    void *mapped = memory_map(bytes);
    if (!mapped || !memory_insert((uint64_t)mapped, bytes, charged_bytes, kind, context, NULL)) {
        if (mapped)
            memory_unmap(mapped, bytes, true);
        if (charged_bytes)
            sim_client_release(context->device->device, charged_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (CUdeviceptr)mapped;
    return CUDA_SUCCESS;
}

/* Returns the bytes of blocks that the device has again. */
static uint64_t give_back(struct allocation *allocation)
{
    uint64_t moved_bytes = 0;
    /* the host itself may have written to managed and to host memory */
    bool untouched = allocation->backing.bytes == 0 &&
                     (allocation->kind == ALLOCATION_DEVICE || allocation->kind == ALLOCATION_POOL);
    backing_give_up(&allocation->backing);
    managed_forget(allocation->advice);
    if (allocation->block)
        moved_bytes = block_give(allocation->block, allocation->address, allocation->bytes);
    else if (allocation->shared)
        ipc_give_back(allocation);
    else if (allocation->external)
        external_give_back(allocation);
    else if (allocation->kind != ALLOCATION_REGISTERED && allocation->kind != ALLOCATION_MAPPED)
        memory_unmap((void *)allocation->address, allocation->bytes, untouched);
    if (allocation->pool) {
        pthread_mutex_lock(&memory_mutex);
        pool_give_back_locked(allocation->pool, allocation->charged_bytes, allocation->shared);
        pthread_mutex_unlock(&memory_mutex);
    } else if (allocation->charged_bytes && !allocation->shared) {
        sim_client_release(allocation->context->device->device, allocation->charged_bytes);
    }
    free(allocation->touched);
    free(allocation->shared);
    free(allocation);
    return moved_bytes;
}

void memory_forget(uint64_t address)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_remove_locked(address);
    pthread_mutex_unlock(&memory_mutex);
    if (allocation)
        give_back(allocation);
}

/* What is another process's, or a mapping, or the driver's has calls of its own for its end. */
bool memory_is_freeable(const struct allocation *allocation, bool host)
{
    enum allocation_kind kind = allocation->kind;
    return host ? kind == ALLOCATION_HOST
                : kind == ALLOCATION_DEVICE || kind == ALLOCATION_MANAGED ||
                      kind == ALLOCATION_POOL || kind == ALLOCATION_POOL_OPENED ||
                      kind == ALLOCATION_EXTERNAL;
}

CUresult memory_free_now(uint64_t address, bool host)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_byte_locked(address);
    if (allocation && graph_memory_owns(allocation)) { /* its address outlives its memory */
        bool begins = allocation->address == address;
        pthread_mutex_unlock(&memory_mutex);
        return begins && !host ? graph_memory_free(address) : CUDA_ERROR_INVALID_VALUE;
    }
    if (allocation && memory_is_freeable(allocation, host))
        allocation = memory_remove_locked(address);
    else
        allocation = NULL;
    pthread_mutex_unlock(&memory_mutex);
    INVALID_IF(!allocation);
    bool plain = allocation->kind == ALLOCATION_DEVICE;
    const struct CUctx_st *context = allocation->context;
    uint64_t moved_bytes = give_back(allocation);
    if (plain)
        blocks_take_time(context, moved_bytes);
    return CUDA_SUCCESS;
}

CUresult memory_free(uint64_t address, bool host)
{
    CHECK(stream_calls_settle());
    return memory_free_now(address, host);
}

void memory_free_context(struct CUctx_st *context)
{
    struct allocation *allocation;
    while ((allocation = memory_take_of_context(context)) != NULL)
        give_back(allocation);
}

/* ---- entry points ---------------------------------------------------------------------------- */

static CUresult allocate(CUdeviceptr *address, uint64_t bytes, enum allocation_kind kind)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!address || bytes == 0);
    CHECK(capture_check_unsafe());
    return memory_allocate(context, bytes, kind, address);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CALL_TAKES(cuMemAlloc);
    return allocate(address, bytes, ALLOCATION_DEVICE);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes, size_t height,
                            unsigned int element_bytes)
{
    CALL_TAKES(cuMemAlloc);
    INVALID_IF(!pitch || width_bytes == 0 || height == 0 ||
               (element_bytes != 4 && element_bytes != 8 && element_bytes != 16));
    size_t row_bytes = (width_bytes + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    REFUSE_IF(row_bytes < width_bytes || height > SIZE_MAX / row_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(allocate(address, (uint64_t)row_bytes * height, ALLOCATION_DEVICE));
    *pitch = row_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    CALL_TAKES(cuMemAllocManaged);
    INVALID_IF(flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST);
    return allocate(address, bytes, ALLOCATION_MANAGED);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    CALL_TAKES(cuMemFree);
    CUresult result = memory_check_free(address);
    if (result != CUDA_SUCCESS || !address)
        return result;
    result = capture_check_unsafe();
    return result == CUDA_SUCCESS ? memory_free(address, false) : result;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CALL_TAKES(cuMemGetInfo);
    CURRENT_CONTEXT(context);
    uint64_t used_bytes, own_bytes;
    uint64_t memory_bytes = context->device->identity->profile.memory_bytes;
    REFUSE_IF(sim_client_memory(context->device->device, &used_bytes, &own_bytes) != 0,
              CUDA_ERROR_UNKNOWN);
    if (free_bytes) /* either may be left out, which the driver does not document */
        *free_bytes = memory_bytes - used_bytes;
    if (total_bytes)
        *total_bytes = memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct allocation found;
    DRIVER_CHECK();
    REFUSE_IF(!memory_find(address, 1, &found), CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = found.address;
    if (bytes)
        *bytes = found.bytes;
    return CUDA_SUCCESS;
}
