/*
 * Limits of a context. The printf buffer and the malloc heap take device memory, of which that of
 * the default sizes is part of what every context costs: only what goes beyond is charged, when the
 * limit is set, and given back when it is set lower or with the context. The stack, which the
 * driver backs for as many threads as the device holds, and the queues of the device runtime are
 * not charged.
 */
#include "driver.h"

#define STACK_DEFAULT_BYTES 1024
#define STACK_MOST_BYTES (512u << 10)
#define FIFO_DEFAULT_BYTES (1u << 20)
#define HEAP_DEFAULT_BYTES (8u << 20)
#define SYNC_DEPTH_DEFAULT 2
#define SYNC_DEPTH_MOST 24
#define SYNC_DEPTH_END_MAJOR 9 /* devices from here on do not have it */
#define LAUNCH_COUNT_DEFAULT 2048
#define FETCH_DEFAULT_BYTES 64
#define FETCH_MOST_BYTES 128

/* Guards what buffers took; taken before memory_mutex, and never held across a wait. */
static pthread_mutex_t limits_mutex = PTHREAD_MUTEX_INITIALIZER;

struct context_settings *context_settings_of(struct CUctx_st *context)
{
    if (context->settings.context_id != context->id)
        context->settings = (struct context_settings){.context_id = context->id};
    return &context->settings;
}

static bool exists(const struct CUctx_st *context, CUlimit limit)
{
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
        return context->device->identity->profile.compute_major < SYNC_DEPTH_END_MAJOR;
    return (unsigned int)limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    static const size_t defaults[] = {
        [CU_LIMIT_STACK_SIZE] = STACK_DEFAULT_BYTES,
        [CU_LIMIT_PRINTF_FIFO_SIZE] = FIFO_DEFAULT_BYTES,
        [CU_LIMIT_MALLOC_HEAP_SIZE] = HEAP_DEFAULT_BYTES,
        [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = SYNC_DEPTH_DEFAULT,
        [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = LAUNCH_COUNT_DEFAULT,
        [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = FETCH_DEFAULT_BYTES,
        [CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0,
    };
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!exists(context, limit))
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limits[limit] ? context->limits[limit] : defaults[limit];
    return CUDA_SUCCESS;
}

/* Takes what a buffer of `bytes` needs beyond its default, in place of what it had. */
static CUresult back_buffer(struct CUctx_st *context, CUdeviceptr *memory, size_t bytes,
                            size_t default_bytes)
{
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr taken = 0;
    if (bytes > default_bytes)
        result = memory_allocate(context, bytes - default_bytes, ALLOCATION_OWN, &taken);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&limits_mutex);
    CUdeviceptr before = *memory;
    *memory = taken;
    pthread_mutex_unlock(&limits_mutex);
    if (before)
        memory_forget(before); /* no copy can know of it */
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!exists(context, limit))
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    CUdeviceptr *memory = context_settings_of(context)->limit_memory;
    size_t l2_bytes = context->device->identity->profile.l2_bytes;
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
        result = value && value <= STACK_MOST_BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        result = back_buffer(context, &memory[0], value, FIFO_DEFAULT_BYTES);
        break;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        result = back_buffer(context, &memory[1], value, HEAP_DEFAULT_BYTES);
        break;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
        result = value && value <= SYNC_DEPTH_MOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: /* this and the next are clamped, as they may be */
        value = value > FETCH_MOST_BYTES ? FETCH_MOST_BYTES : value;
        break;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        value = value > l2_bytes ? l2_bytes : value;
        break;
    default:
        break;
    }
    if (result == CUDA_SUCCESS)
        context->limits[limit] = value;
    return result;
}
