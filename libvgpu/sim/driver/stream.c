/*
 * Streams. Each is a sequence of operations in one of the process's lanes on the device, chosen at
 * its creation: the one with the fewest streams. Streams that share a lane wait for each other, as
 * on a real device when there are more of them than hardware queues.
 *
 * The default stream of a context (lane 0) and the streams not made with CU_STREAM_NON_BLOCKING
 * wait for each other, as the driver documents: work on the default stream comes after all that was
 * put onto the blocking streams before, and theirs after what was put onto the default stream
 * before. The per-thread default stream is a blocking stream like those of the program; there is
 * one for all threads.
 */
#include "context_memory.h"
#include "driver.h"
#include "twins.h"

#define PRIORITY_GREATEST (-5)
#define LANE_LEGACY 0
#define LANE_PER_THREAD 1

static bool blocks(const struct CUstream_st *stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void stream_initialise(struct CUstream_st *stream, struct CUctx_st *context, unsigned int flags)
{
    *stream =
        (struct CUstream_st){.magic = MAGIC_STREAM,
                             .context = context,
                             .context_id = context->id,
                             .device = context->device,
                             .flags = flags,
                             .lane = stream == &context->per_thread ? LANE_PER_THREAD : LANE_LEGACY,
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
    REFUSE_IF(__builtin_expect(!__atomic_load_n(&driver.ready, __ATOMIC_ACQUIRE), 0),
              CUDA_ERROR_NOT_INITIALIZED);
    REFUSE_IF(__builtin_expect(stream_call_is_here(), 0), CUDA_ERROR_NOT_PERMITTED);
    REFUSE_IF(!handle_is(MAGIC_STREAM, handle), CUDA_ERROR_INVALID_HANDLE);
    CHECK(context_check(handle->context, handle->context_id));
    *stream = handle;
    return CUDA_SUCCESS;
}

/* ---- work ------------------------------------------------------------------------------------ */

static void raise_to(uint64_t *value, uint64_t at_least)
{
    uint64_t seen = __atomic_load_n(value, __ATOMIC_RELAXED);
    while (seen < at_least && !__atomic_compare_exchange_n(value, &seen, at_least, false,
                                                           __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

static uint64_t submit_alone(struct CUstream_st *stream, const struct sim_submission *submission)
{
    struct CUctx_st *context = stream->context;
    uint64_t place = sim_queue_submit(context->device->device, stream->lane, submission);
    raise_to(&stream->last, place);
    raise_to(&context->last[stream->lane], place);
    if (blocks(stream))
        raise_to(&context->blocking[stream->lane], place);
    return place;
}

/* Puts a wait for `place` onto a stream, unless that is done already. */
static void wait_for_place(struct CUstream_st *stream, uint64_t place)
{
    if (!place || sim_place_lane(place) == stream->lane ||
        sim_queue_known_done(stream->context->device->device, place))
        return;
    struct sim_submission wait = {.kind = SIM_OPERATION_EVENT, .after = place};
    submit_alone(stream, &wait);
}

/* Work on the default stream comes after what the blocking streams were given before. */
static void join_blocking(struct CUctx_st *context)
{
    for (uint32_t lane = LANE_LEGACY + 1; lane < SIM_LANES; lane++) {
        uint64_t place = __atomic_load_n(&context->blocking[lane], __ATOMIC_ACQUIRE);
        if (place == __atomic_load_n(&context->joined[lane], __ATOMIC_ACQUIRE))
            continue;
        wait_for_place(&context->legacy, place);
        /* only now may another thread rely on it; two may both have put a wait there */
        __atomic_store_n(&context->joined[lane], place, __ATOMIC_RELEASE);
    }
}

uint64_t stream_submit(struct CUstream_st *stream, const struct sim_submission *submission)
{
    struct CUctx_st *context = stream->context;
    if (stream == &context->legacy) {
        join_blocking(context);
    } else if (blocks(stream)) {
        uint64_t legacy = __atomic_load_n(&context->legacy.last, __ATOMIC_ACQUIRE);
        if (legacy != __atomic_load_n(&stream->seen_legacy, __ATOMIC_ACQUIRE)) {
            wait_for_place(stream, legacy);
            __atomic_store_n(&stream->seen_legacy, legacy, __ATOMIC_RELEASE);
        }
    }
    if (!stream->priority)
        return submit_alone(stream, submission);
    struct sim_submission own = *submission;
    own.priority = stream->priority;
    return submit_alone(stream, &own);
}

void stream_wait_place(struct CUstream_st *stream, uint64_t place)
{
    struct sim_submission wait = {.kind = SIM_OPERATION_EVENT, .after = place};
    if (place && !sim_queue_known_done(stream->context->device->device, place))
        stream_submit(stream, &wait);
}

/* The default stream is done when the blocking streams are: it would come after them. */
static uint64_t last_in_lane(struct CUstream_st *stream, uint32_t lane)
{
    uint64_t *place = stream == &stream->context->legacy ? &stream->context->blocking[lane]
                      : lane == stream->lane             ? &stream->last
                                                         : NULL;
    return place ? __atomic_load_n(place, __ATOMIC_ACQUIRE) : 0;
}

CUresult stream_wait(struct CUstream_st *stream)
{
    for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
        uint64_t place = last_in_lane(stream, lane);
        if (place)
            sim_queue_wait(stream->context->device->device, place);
    }
    return sim_device_failed(stream->context->device->device) ? CUDA_ERROR_MPS_RPC_FAILURE
                                                              : CUDA_SUCCESS;
}

bool stream_is_done(struct CUstream_st *stream)
{
    for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
        uint64_t place = last_in_lane(stream, lane);
        if (place && !sim_queue_query(stream->context->device->device, place))
            return false;
    }
    return true;
}

/* ---- making and ending them ------------------------------------------------------------------ */

/* Called under driver.mutex. */
static CUresult choose_lane(struct driver_device *device, uint32_t *lane)
{
    uint32_t best = LANE_LEGACY + 1;
    for (uint32_t i = best + 1; i < SIM_LANES; i++)
        if (device->lane_streams[i] < device->lane_streams[best])
            best = i;
    REFUSE_IF(sim_queue_open(device->device, best) != 0, CUDA_ERROR_OUT_OF_MEMORY);
    device->lane_streams[best]++;
    *lane = best;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    CALL_TAKES(cuStreamCreate);
    CURRENT_CONTEXT(context);
    INVALID_IF(!stream || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING);
    struct CUstream_st *created = handle_new(MAGIC_STREAM, sizeof *created);
    REFUSE_IF(!created, CUDA_ERROR_OUT_OF_MEMORY);
    stream_initialise(created, context, flags);
    created->priority = priority > 0                   ? 0
                        : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST
                                                       : priority; /* clamped, as documented */
    pthread_mutex_lock(&driver.mutex);
    CUresult result = context_begin_stream(context);
    if (result == CUDA_SUCCESS) {
        result = choose_lane(context->device, &created->lane);
        if (result != CUDA_SUCCESS)
            context_end_stream(created);
    }
    pthread_mutex_unlock(&driver.mutex);
    if (result != CUDA_SUCCESS) {
        handle_bury(created);
        return result;
    }
    *stream = created;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    CALL_TAKES(cuStreamDestroy);
    DRIVER_CHECK();
    REFUSE_IF(!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
                  !handle_is(MAGIC_STREAM, stream) || stream == &stream->context->legacy ||
                  stream == &stream->context->per_thread,
              CUDA_ERROR_INVALID_HANDLE);
    if (stream_capture(stream))
        capture_abandon(stream);
    if (stream->caller)
        caller_close(stream->caller);
    pthread_mutex_lock(&driver.mutex);
    stream->device->lane_streams[stream->lane]--;
    context_end_stream(stream);
    pthread_mutex_unlock(&driver.mutex);
    handle_bury(stream); /* its work goes on: the context knows the last of it */
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

/* ---- waiting --------------------------------------------------------------------------------- */

CUresult cuStreamSynchronize(CUstream handle)
{
    CALL_TAKES(cuStreamSynchronize);
    RESOLVE_STREAM(stream, handle);
    if (stream_capture(stream))
        return capture_refuse(stream);
    CUresult result = stream_wait(stream);
    call_has_waited();
    pool_trim_device(stream->context->device, true);
    return result;
}

CUresult cuStreamQuery(CUstream handle)
{
    CALL_TAKES(cuStreamQuery);
    RESOLVE_STREAM(stream, handle);
    if (stream_capture(stream))
        return capture_refuse(stream);
    return stream_is_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* A function that tells one thing of a stream, and its twin. */
#define TELL(name, type, value) \
    CUresult name(CUstream handle, type *told) \
    { \
        RESOLVE_STREAM(stream, handle); \
        INVALID_IF(!told); \
        *told = value; \
        return CUDA_SUCCESS; \
    } \
    TWIN(name##_ptsz, (CUstream stream, type * told), name(OWN(stream), told))
TELL(cuStreamGetCtx, CUcontext, stream->context)
TELL(cuStreamGetDevice, CUdevice, stream->context->device->ordinal)
TELL(cuStreamGetFlags, unsigned int, stream->flags)
TELL(cuStreamGetPriority, int, stream->priority)
TELL(cuStreamGetId, unsigned long long, stream->id)
