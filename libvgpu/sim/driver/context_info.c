/* What can be asked of a context, and waiting for all of its work. */
#include "driver.h"

CUresult cuCtxGetDevice(CUdevice *device)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!device);
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult context_given_or_current(CUcontext given, struct CUctx_st **context)
{
    if (!given)
        return context_current(context);
    DRIVER_CHECK();
    REFUSE_IF(!context_is_one(given), CUDA_ERROR_INVALID_CONTEXT);
    REFUSE_IF(!given->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *context = given;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext given)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(given, &context));
    INVALID_IF(!device);
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult context_wait(struct CUctx_st *context)
{
    for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
        uint64_t last = __atomic_load_n(&context->last[lane], __ATOMIC_ACQUIRE);
        if (last)
            sim_queue_wait(context->device->device, last);
    }
    pool_trim_device(context->device, true);
    return sim_device_failed(context->device->device) ? CUDA_ERROR_MPS_RPC_FAILURE : CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext given)
{
    CALL_TAKES(cuCtxSynchronize);
    struct CUctx_st *context;
    CUresult result = context_given_or_current(given, &context);
    if (result == CUDA_SUCCESS)
        result = capture_check_unsafe();
    if (result == CUDA_SUCCESS)
        result = context_wait(context);
    call_has_waited();
    return result;
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!flags);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext given, unsigned long long *id)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(given, &context));
    INVALID_IF(!id);
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext given, unsigned int *version)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(given, &context));
    INVALID_IF(!version);
    *version = 3020; /* of the context interface, as the driver has said since */
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CURRENT_CONTEXT(context);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!config);
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct CUctx_st *context;
    (void)config; /* a wish */
    return context_current(&context);
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(flags & ~(unsigned int)CU_CTX_FLAGS_MASK);
    context->flags = flags;
    return CUDA_SUCCESS;
}

/* How many SMs the context may use: as an MPS client its part of them. */
CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!affinity);
    REFUSE_IF(type != CU_EXEC_AFFINITY_TYPE_SM_COUNT, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    uint32_t count = context->device->identity->profile.sm_count;
    uint32_t percentage = context->device->percentage ? context->device->percentage : 100;
    affinity->type = type;
    affinity->param.smCount.val = (count * percentage + 99) / 100;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    struct CUctx_st *context;
    return context_current(&context); /* caches are not modelled */
}

/* ---- events of a whole context --------------------------------------------------------------- */

/* The default stream comes after everything in the context, and the event after that. */
static CUresult record_after_all(struct CUctx_st *context, CUevent event)
{
    for (uint32_t lane = 0; lane < SIM_LANES && !context->legacy.capture; lane++)
        stream_wait_place(&context->legacy,
                          __atomic_load_n(&context->last[lane], __ATOMIC_ACQUIRE));
    return cuEventRecord(event, &context->legacy);
}

/* In every lane what comes next waits for the event: on another device, or recorded by another
 * process, for the default stream, which waits for it. */
static CUresult hold_all(struct CUctx_st *context, CUevent event)
{
    struct driver_device *device = context->device;
    CUresult result = cuStreamWaitEvent(&context->legacy, event, 0);
    bool here = event->device == device && !event->shared;
    uint64_t place = here ? event_place(event) : context->legacy.last;
    for (uint32_t lane = 0; lane < SIM_LANES && result == CUDA_SUCCESS; lane++) {
        struct CUstream_st any_of_lane = {
            .context = context, .flags = CU_STREAM_NON_BLOCKING, .lane = lane};
        if (sim_queue_open(device->device, lane) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else
            stream_wait_place(&any_of_lane, place);
    }
    return result;
}

static CUresult on_all_streams(struct CUctx_st *context, CUevent event, bool record)
{
    REFUSE_IF(!is_event(event), CUDA_ERROR_INVALID_HANDLE);
    /* a green context shares the events of the primary one */
    bool own = event->context == context && event->context_id == context->id;
    REFUSE_IF(record && !own && !context_settings_of(context)->green, CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(event_capture(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return record ? record_after_all(context, event) : hold_all(context, event);
}

static CUresult with_event(CUcontext given, CUevent event, bool record)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(given, &context));
    return on_all_streams(context, event, record);
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    return with_event(context, event, true);
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
    return with_event(context, event, false);
}
