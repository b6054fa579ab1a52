/* Streams: names for parts of the process's one in-order queue on a device. Work of two streams of
 * a process therefore never overlaps, which a device that is busy would not let it either. */
#include <stdlib.h>

#include "driver.h"
#include "host_function.h"

#define PRIORITY_GREATEST (-5)

void stream_initialise(struct CUstream_st *stream, struct CUctx_st *context, unsigned int flags)
{
    *stream = (struct CUstream_st){.magic = MAGIC_STREAM,
                                   .context = context,
                                   .flags = flags,
                                   .id = __atomic_add_fetch(&driver.next_id, 1, __ATOMIC_RELAXED)};
}

CUresult stream_resolve(CUstream handle, struct CUstream_st **stream)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct CUctx_st *context;
        CUresult result = context_current(&context);
        if (result == CUDA_SUCCESS)
            *stream = handle == CU_STREAM_PER_THREAD ? &context->per_thread : &context->legacy;
        return result;
    }
    DRIVER_CHECK();
    if (handle->magic != MAGIC_STREAM)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!handle->context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *stream = handle;
    return CUDA_SUCCESS;
}

static void raise_to(uint64_t *value, uint64_t at_least)
{
    uint64_t seen = __atomic_load_n(value, __ATOMIC_RELAXED);
    while (seen < at_least && !__atomic_compare_exchange_n(value, &seen, at_least, false,
                                                           __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

uint64_t stream_submit(struct CUstream_st *stream, const struct sim_submission *submission)
{
    uint64_t sequence = sim_queue_submit(stream->context->device->device, submission);
    raise_to(&stream->last, sequence + 1);
    raise_to(&stream->context->last, sequence + 1);
    return sequence;
}

CUresult stream_wait(struct CUstream_st *stream)
{
    uint64_t last = __atomic_load_n(&stream->last, __ATOMIC_ACQUIRE);
    if (last)
        sim_queue_wait(stream->context->device->device, last - 1);
    host_function_wait(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream || flags & ~1u)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUstream_st *created = malloc(sizeof *created);
    if (!created)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream_initialise(created, context, flags);
    created->priority = priority > 0                   ? 0
                        : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST
                                                       : priority; /* clamped, and not acted on */
    *stream = created;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    DRIVER_CHECK();
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        stream->magic != MAGIC_STREAM || stream == &stream->context->legacy ||
        stream == &stream->context->per_thread)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        capture_abandon(stream);
    host_function_wait(stream);
    stream->magic = 0;
    free(stream); /* its work goes on: the context knows the last of it */
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

CUresult cuStreamSynchronize(CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture)
        return capture_refuse(stream);
    result = stream_wait(stream);
    pool_trim_device(stream->context->device, true);
    return result;
}

CUresult cuStreamQuery(CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capture)
        return capture_refuse(stream);
    uint64_t last = __atomic_load_n(&stream->last, __ATOMIC_ACQUIRE);
    if (last && !sim_queue_query(stream->context->device->device, last - 1))
        return CUDA_ERROR_NOT_READY;
    return __atomic_load_n(&stream->callbacks, __ATOMIC_ACQUIRE) ? CUDA_ERROR_NOT_READY
                                                                 : CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && !context)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *context = stream->context;
    return result;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && !device)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *device = stream->context->device->ordinal;
    return result;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && !flags)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *flags = stream->flags;
    return result;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && !priority)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *priority = stream->priority;
    return result;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS && !id)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *id = stream->id;
    return result;
}
