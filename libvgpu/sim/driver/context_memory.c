#include "context_memory.h"

#include "block.h"

#define MIB_BYTES (1ull << 20)
#define STACK_DEFAULT_BYTES 1024
/* As an H100 showed: 64 streams take a step more than 16 times that of 4. */
#define STREAMS_OF_ONE_TABLE 32

static pthread_mutex_t buffers_mutex = PTHREAD_MUTEX_INITIALIZER;

static const struct sim_calibration *calibration_of(const struct CUctx_st *context)
{
    return &context->device->identity->profile.calibration;
}

struct context_settings *context_settings_of(struct CUctx_st *context)
{
    if (context->settings.context_id != context->id)
        context->settings = (struct context_settings){.context_id = context->id};
    return &context->settings;
}

uint64_t context_own_bytes(const struct driver_device *device, bool green)
{
    const struct sim_profile *profile = &device->identity->profile;
    return green && profile->calibration.green_context_bytes != UINT64_MAX
               ? profile->calibration.green_context_bytes
               : profile->context_bytes;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static CUresult resize_locked(struct CUctx_st *context, enum context_buffer buffer, uint64_t bytes)
{
    uint64_t *taken_bytes = &context_settings_of(context)->buffer_bytes[buffer];
    uint64_t wanted_bytes =
        block_wanted(context->device) ? block_round(context->device, bytes) : memory_round(bytes);
    REFUSE_IF(wanted_bytes < bytes, CUDA_ERROR_OUT_OF_MEMORY);
    if (wanted_bytes < *taken_bytes)
        sim_client_release(context->device->device, *taken_bytes - wanted_bytes);
    else if (wanted_bytes > *taken_bytes &&
             memory_charge(context->device, wanted_bytes - *taken_bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *taken_bytes = wanted_bytes;
    return CUDA_SUCCESS;
}

CUresult context_buffer_resize(struct CUctx_st *context, enum context_buffer buffer, uint64_t bytes)
{
    pthread_mutex_lock(&buffers_mutex);
    CUresult result = resize_locked(context, buffer, bytes);
    pthread_mutex_unlock(&buffers_mutex);
    return result;
}

void context_limits_end(struct CUctx_st *context)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&buffers_mutex);
    struct context_settings *settings = context_settings_of(context);
    for (int i = 0; i < CONTEXT_BUFFER_COUNT; i++) {
        bytes += settings->buffer_bytes[i];
        settings->buffer_bytes[i] = 0;
    }
    pthread_mutex_unlock(&buffers_mutex);
    if (bytes)
        sim_client_release(context->device->device, bytes);
}

/* ---- stacks ---------------------------------------------------------------------------------- */

/* There is one for every thread that can be resident on the device. UINT64_MAX: too much. */
static uint64_t bytes_of_stacks(const struct CUctx_st *context, uint64_t stack_bytes)
{
    const struct sim_profile *profile = &context->device->identity->profile;
    uint64_t beyond_bytes =
        stack_bytes > STACK_DEFAULT_BYTES ? stack_bytes - STACK_DEFAULT_BYTES : 0;
    return beyond_bytes * profile->sm_count * profile->threads_per_sm;
}

CUresult context_resize_stacks(struct CUctx_st *context, uint64_t stack_bytes)
{
    return context_buffer_resize(context, CONTEXT_BUFFER_STACKS,
                                 bytes_of_stacks(context, stack_bytes));
}

/* Local memory only grows by launches. */
static CUresult take_local(struct CUctx_st *context, uint32_t local_bytes)
{
    const struct sim_calibration *calibration = calibration_of(context);
    uint64_t steps =
        ((uint64_t)local_bytes + calibration->local_step_bytes - 1) / calibration->local_step_bytes;
    uint64_t bytes = bytes_of_stacks(context, steps * calibration->local_step_bytes);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&buffers_mutex);
    uint64_t taken_bytes = context_settings_of(context)->buffer_bytes[CONTEXT_BUFFER_STACKS];
    if (bytes > taken_bytes + calibration->local_slack_bytes)
        result = resize_locked(context, CONTEXT_BUFFER_STACKS, bytes);
    pthread_mutex_unlock(&buffers_mutex);
    return result;
}

/* ---- streams --------------------------------------------------------------------------------- */

CUresult context_begin_stream(struct CUctx_st *context)
{
    const struct sim_calibration *calibration = calibration_of(context);
    uint64_t steps = context->stream_count / calibration->streams_per_step + 1;
    if (context->stream_count >= STREAMS_OF_ONE_TABLE)
        steps++;
    uint64_t bytes = steps * calibration->streams_bytes;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&buffers_mutex);
    if (bytes > context_settings_of(context)->buffer_bytes[CONTEXT_BUFFER_STREAMS])
        result = resize_locked(context, CONTEXT_BUFFER_STREAMS, bytes);
    pthread_mutex_unlock(&buffers_mutex);
    context->stream_count += result == CUDA_SUCCESS;
    return result;
}

void context_end_stream(const struct CUstream_st *stream)
{
    if (stream->id > stream->context->id) /* not of a primary context that was reset since */
        stream->context->stream_count--;
}

/* ---- code ------------------------------------------------------------------------------------ */

CUresult context_load_code(struct CUctx_st *context, struct CUfunc_st *function)
{
    struct CUmod_st *module = function->image->module;
    CUresult result = CUDA_SUCCESS;
    if (!function->image->lazy_mib)
        return CUDA_SUCCESS;
    if (function->image->library)
        result = library_module(function->image->library, context, &module);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&buffers_mutex);
    uint64_t *taken_bytes = &context_settings_of(context)->buffer_bytes[CONTEXT_BUFFER_CODE];
    uint64_t before_bytes = *taken_bytes;
    if (!module->code_bytes) {
        result = resize_locked(context, CONTEXT_BUFFER_CODE,
                               before_bytes + function->image->lazy_mib * MIB_BYTES);
        module->code_bytes = *taken_bytes - before_bytes;
    }
    pthread_mutex_unlock(&buffers_mutex);
    return result;
}

void context_unload_code(struct CUmod_st *module)
{
    pthread_mutex_lock(&buffers_mutex);
    struct context_settings *settings = context_settings_of(module->context);
    if (module->code_bytes) /* it gets smaller, which cannot fail */
        resize_locked(module->context, CONTEXT_BUFFER_CODE,
                      settings->buffer_bytes[CONTEXT_BUFFER_CODE] - module->code_bytes);
    module->code_bytes = 0;
    pthread_mutex_unlock(&buffers_mutex);
}

CUresult context_prepare_function(struct CUctx_st *context, struct CUfunc_st *function)
{
    const struct sim_calibration *calibration = calibration_of(context);
    CUresult result = context_load_code(context, function);
    if (result != CUDA_SUCCESS || !calibration->local_memory)
        return result;
    result = take_local(context, function->local_bytes);
    if (result == CUDA_SUCCESS && function_needs(function) & NEEDS_PRINTF)
        result = context_buffer_resize(context, CONTEXT_BUFFER_PRINTF,
                                       context->limits[CU_LIMIT_PRINTF_FIFO_SIZE]);
    if (result == CUDA_SUCCESS && function_needs(function) & NEEDS_HEAP)
        result = context_buffer_resize(context, CONTEXT_BUFFER_HEAP,
                                       context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] +
                                           calibration->heap_bytes);
    return result;
}
