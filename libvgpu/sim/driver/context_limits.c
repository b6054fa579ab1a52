/*
 * Limits of a context. The stacks take device memory when their limit is set, of which those of the
 * default size are part of what every context costs: only what goes beyond is charged, and given
 * back when it is set lower or with the context. Where the calibration has launches take local
 * memory, a launch may need more of it than the limit says (context_memory.c), which a smaller limit
 * gives back; the printf buffer and the malloc heap are then taken whole by the first kernel that
 * uses them, else like the stacks. The queues of the device runtime are not charged. No context here
 * belongs to a graphics program ("CUDA in Graphics", from CUDA 12.5 on), whose limits can be asked for.
 */
#include "context_memory.h"

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
#define GRAPHICS_BEGIN_VERSION 12050

static bool exists(const struct CUctx_st *context, CUlimit limit)
{
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
        return context->device->identity->profile.compute_major < SYNC_DEPTH_END_MAJOR;
    if (limit >= CU_LIMIT_SHMEM_SIZE && driver_version() < GRAPHICS_BEGIN_VERSION)
        return false;
    return (unsigned int)limit <= CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED;
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
        [CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED] = 0,
    };
    CURRENT_CONTEXT(context);
    INVALID_IF(!value);
    REFUSE_IF(!exists(context, limit), CUDA_ERROR_UNSUPPORTED_LIMIT);
    if (limit == CU_LIMIT_SHMEM_SIZE)
        *value = context->device->identity->profile.shared_bytes_per_block;
    else
        *value = context->limits[limit] ? context->limits[limit] : defaults[limit];
    return CUDA_SUCCESS;
}

/* What goes beyond a default that is part of every context's cost, where buffers are taken when
 * their size is set; else a kernel that uses one takes all of it. */
static CUresult resize_at_once(struct CUctx_st *context, enum context_buffer buffer, size_t bytes,
                               size_t default_bytes)
{
    const struct sim_profile *profile = &context->device->identity->profile;
    /* also what would wrap round */
    REFUSE_IF(bytes > profile->memory_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    if (profile->calibration.local_memory)
        return CUDA_SUCCESS;
    return context_buffer_resize(context, buffer,
                                 bytes > default_bytes ? bytes - default_bytes : 0);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    REFUSE_IF(!exists(context, limit), CUDA_ERROR_UNSUPPORTED_LIMIT);
    const struct sim_profile *profile = &context->device->identity->profile;
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
        result = value && value <= STACK_MOST_BYTES ? context_resize_stacks(context, value)
                                                    : CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        result = resize_at_once(context, CONTEXT_BUFFER_PRINTF, value, FIFO_DEFAULT_BYTES);
        break;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        result = resize_at_once(context, CONTEXT_BUFFER_HEAP, value, HEAP_DEFAULT_BYTES);
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
    case CU_LIMIT_SHMEM_SIZE: /* these two can only be asked for */
    case CU_LIMIT_CIG_ENABLED:
        result = CUDA_ERROR_UNSUPPORTED_LIMIT;
        break;
    default:
        break;
    }
    if (result == CUDA_SUCCESS)
        context->limits[limit] = value;
    return result;
}
