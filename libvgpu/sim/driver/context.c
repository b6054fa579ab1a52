/* Contexts: a primary one a device, and created ones. Each costs the profile's context_bytes (part
 * of a green one what its calibration says) from its beginning to its end. The first of a process on a device makes the process its client. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array_mapping.h"
#include "context_memory.h"
#include "export_table.h"
#include "external.h"

static CUresult attach_failure(int error)
{
    switch (error) {
    case -EACCES: /* compute mode PROHIBITED */
    case -EBUSY:  /* EXCLUSIVE_PROCESS, and another process is there */
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case -EUSERS:
        return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
    case -ENODEV: /* MIG was changed since cuInit */
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case -ENOSPC:
        fprintf(stderr, "simulated libcuda: no space left on the disk of the machine's file\n");
        return CUDA_ERROR_OPERATING_SYSTEM;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

struct sim_client_options device_client_options(struct driver_device *device)
{
    return (struct sim_client_options){.percentage = device->percentage,
                                       .client_limit = mps_client_limit(device),
                                       .served = sim_device_is_served(device->device)};
}

/* Makes the device side of a context. Called under driver.mutex. */
static CUresult begin_context(struct CUctx_st *context, struct driver_device *device,
                              unsigned int flags, bool green)
{
    struct sim_client_options options = device_client_options(device);
    REFUSE_IF(device->percentage && mps_client_lost(), CUDA_ERROR_MPS_RPC_FAILURE);
    REFUSE_IF(fault_of(device)->lost, CUDA_ERROR_DEVICE_UNAVAILABLE);
    int error = sim_client_attach(device->device, &options);
    if (!error)
        error = sim_queue_open(device->device, 1); /* of the per-thread default stream */
    if (error)
        return attach_failure(error);
    uint64_t own_bytes = context_own_bytes(device, green);
    if (memory_charge(device, own_bytes) != 0) {
        sim_client_detach_idle(device->device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->device = device;
    context->flags = flags;
    context->id = __atomic_add_fetch(&driver.next_id, 1, __ATOMIC_RELAXED);
    context->begun_ns = sim_now_ns();
    context->own_bytes = own_bytes;
    context->stream_count = 0;
    memset(context->last, 0, sizeof context->last);
    memset(context->blocking, 0, sizeof context->blocking);
    memset(context->joined, 0, sizeof context->joined);
    memset(context->limits, 0, sizeof context->limits);
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    stream_initialise(&context->legacy, context, CU_STREAM_DEFAULT);
    stream_initialise(&context->per_thread, context, CU_STREAM_DEFAULT);
    context->alive = true;
    return CUDA_SUCCESS;
}

/* Called under driver.mutex, which is let go while the work of the context comes to its end: a
 * function in one of its streams may wait for a thread that wants the mutex. A stream that waits
 * for a word of memory waits no longer. */
static void end_context(struct CUctx_st *context)
{
    context->alive = false;
    __atomic_store_n(&context->ending, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&driver.mutex);
    context_wait(context);
    pthread_mutex_lock(&driver.mutex);
    if (context->legacy.caller)
        caller_close(context->legacy.caller);
    if (context->per_thread.caller)
        caller_close(context->per_thread.caller);
    array_mappings_end_context(context);
    memory_free_context(context);
    external_end_context(context);
    context_limits_end(context);
    sim_client_release(context->device->device, context->own_bytes);
    __atomic_store_n(&context->ending, false, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&driver.ended);
}

/* ---- primary contexts ------------------------------------------------------------------------ */

/* Called under driver.mutex. */
static void wait_until_ended(const struct CUctx_st *context)
{
    int cancelling; /* a thread that is cancelled here would keep the mutex */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    while (context->ending)
        pthread_cond_wait(&driver.ended, &driver.mutex);
    pthread_setcancelstate(cancelling, NULL);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    CALL_TAKES(cuDevicePrimaryCtxRetain);
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    INVALID_IF(!context);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver.mutex);
    wait_until_ended(&device->primary);
    if (device->primary.alive)
        call_takes_instead(0);
    else
        result = begin_context(&device->primary, device, device->primary.flags, false);
    if (result == CUDA_SUCCESS) {
        device->primary.retained++;
        *context = &device->primary;
    }
    pthread_mutex_unlock(&driver.mutex);
    return result;
}

static CUresult drop_primary(CUdevice ordinal, bool all)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver.mutex);
    struct CUctx_st *primary = &device->primary;
    wait_until_ended(primary);
    if (!all && primary->retained == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (!all)
        primary->retained--;
    if (result == CUDA_SUCCESS && primary->alive && (all || primary->retained == 0)) {
        pthread_mutex_unlock(&driver.mutex); /* what is told of the end may call the driver */
        context_storage_end(primary);
        pthread_mutex_lock(&driver.mutex);
        wait_until_ended(primary);
    }
    if (result == CUDA_SUCCESS && primary->alive && (all || primary->retained == 0)) {
        primary->retained = 0;
        end_context(primary);
    }
    pthread_mutex_unlock(&driver.mutex);
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return drop_primary(device, false);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return drop_primary(device, false);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return drop_primary(device, true);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return drop_primary(device, true);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    DRIVER_CHECK();
    INVALID_IF(!flags || !active);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    *flags = device_of(device)->primary.flags;
    *active = device_of(device)->primary.alive;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    DRIVER_CHECK();
    INVALID_IF(flags & ~(unsigned int)CU_CTX_FLAGS_MASK);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    device_of(device)->primary.flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

/* ---- created contexts ------------------------------------------------------------------------ */

static CUresult create(CUcontext *context, unsigned int flags, CUdevice ordinal, bool green)
{
    CALL_TAKES(cuCtxCreate);
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    INVALID_IF(!context || flags & ~(unsigned int)CU_CTX_FLAGS_MASK);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    INVALID_IF(context_stack_is_full());
    struct CUctx_st *created = handle_new(MAGIC_CONTEXT, sizeof *created);
    REFUSE_IF(!created, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&driver.mutex);
    CUresult result = begin_context(created, device, flags, green);
    pthread_mutex_unlock(&driver.mutex);
    if (result != CUDA_SUCCESS) {
        handle_bury(created);
        return result;
    }
    context_stack_push(created);
    *context = created;
    return CUDA_SUCCESS;
}

CUresult context_create_green(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CALL_TAKES(cuCtxCreate);
    return create(context, flags, ordinal, true);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CALL_TAKES(cuCtxCreate);
    return create(context, flags, ordinal, false);
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities, int affinity_count,
                        unsigned int flags, CUdevice device)
{
    CALL_TAKES(cuCtxCreate);
    INVALID_IF(affinity_count < 0 || (affinity_count > 0 && !affinities));
    /* real only with MPS, and not modelled */
    REFUSE_IF(affinity_count > 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                        CUdevice device)
{
    CALL_TAKES(cuCtxCreate);
    REFUSE_IF(params && params->cigParams, CUDA_ERROR_NOT_SUPPORTED);
    return params ? cuCtxCreate_v3(context, params->execAffinityParams,
                                   params->numExecAffinityParams, flags, device)
                  : cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    CALL_TAKES(cuCtxDestroy);
    DRIVER_CHECK();
    REFUSE_IF(!context_is_one(context) || context->primary, CUDA_ERROR_INVALID_CONTEXT);
    context_storage_end(context);
    pthread_mutex_lock(&driver.mutex);
    CUresult result = context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS)
        end_context(context);
    pthread_mutex_unlock(&driver.mutex);
    if (result != CUDA_SUCCESS) /* another thread is ending it */
        return result;
    context_stack_drop(context);
    handle_bury(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}
