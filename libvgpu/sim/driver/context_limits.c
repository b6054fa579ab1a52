/*
 * Limits of a context. The printf buffer, the malloc heap and the stacks take device memory, of
 * which that of the default sizes is part of what every context costs: only what goes beyond is
 * charged, when the limit is set, and given back when it is set lower or with the context. There is
 * a stack for every thread that can be resident on the device. (A real driver may put that off
 * until a launch needs them.) The queues of the device runtime are not charged.
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

/* Takes, or gives back, the difference to what `count` buffers of `bytes` need beyond their
 * default. Never the old and the new buffers at once: nobody may see more than either needs. */
static CUresult back_buffers(struct CUctx_st *context, enum context_buffer buffer, size_t bytes,
                             size_t default_bytes, uint64_t count)
{
    uint64_t beyond_bytes = bytes > default_bytes ? bytes - default_bytes : 0;
    if (beyond_bytes > context->device->identity->profile.memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY; /* also what would wrap round */
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&limits_mutex);
    uint64_t *taken_bytes = &context_settings_of(context)->buffer_bytes[buffer];
    uint64_t wanted_bytes = memory_round(beyond_bytes * count);
    if (wanted_bytes < *taken_bytes)
        sim_client_release(context->device->device, *taken_bytes - wanted_bytes);
    else if (wanted_bytes > *taken_bytes &&
             memory_charge(context->device, wanted_bytes - *taken_bytes) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *taken_bytes = wanted_bytes;
    pthread_mutex_unlock(&limits_mutex);
    return result;
}

void context_limits_end(struct CUctx_st *context)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&limits_mutex);
    struct context_settings *settings = context_settings_of(context);
    for (int i = 0; i < CONTEXT_BUFFER_COUNT; i++) {
        bytes += settings->buffer_bytes[i];
        settings->buffer_bytes[i] = 0;
    }
    pthread_mutex_unlock(&limits_mutex);
    if (bytes)
        sim_client_release(context->device->device, bytes);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!exists(context, limit))
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    const struct sim_profile *profile = &context->device->identity->profile;
    uint64_t threads = (uint64_t)profile->sm_count * profile->threads_per_sm;
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
        result =
            value && value <= STACK_MOST_BYTES
                ? back_buffers(context, CONTEXT_BUFFER_STACKS, value, STACK_DEFAULT_BYTES, threads)
                : CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        result = back_buffers(context, CONTEXT_BUFFER_PRINTF, value, FIFO_DEFAULT_BYTES, 1);
        break;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        result = back_buffers(context, CONTEXT_BUFFER_HEAP, value, HEAP_DEFAULT_BYTES, 1);
        break;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
        result = value && value <= SYNC_DEPTH_MOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: /* this and the next are clamped, as they may be */
        value = value > FETCH_MOST_BYTES ? FETCH_MOST_BYTES : value;
        break;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        value = value > profile->l2_bytes ? profile->l2_bytes : value;
        break;
    default:
        break;
    }
    if (result == CUDA_SUCCESS)
        context->limits[limit] = value;
    return result;
}
