/*
 * Events. Each record of one is an operation in a stream, and the event stands for its last record:
 * one made earlier is forgotten, also where the device gets to it later. `place` says which record
 * is the last. It changes under the device's mutex as the record is put into its stream, so it names
 * the last one also where several threads record an event. `at_ns` is of that record alone. What
 * asks about an event takes the record that is the last at that moment.
 */
#include <stdlib.h>

#include "event_ipc.h"

#define NS_PER_MS 1000000.0

static void bury_event(struct CUevent_st *event)
{
    if (event->shared)
        event_end_shared(event->shared);
    handle_bury(event);
}

/* Called by the core under the device's mutex; counts down the records under way. */
void event_done(void *note, uint64_t place, uint64_t at_ns)
{
    struct CUevent_st *event = note;
    if (place == event->place)
        event->at_ns = at_ns;
    if (__atomic_sub_fetch(&event->pending, 1, __ATOMIC_ACQ_REL) == 0 &&
        __atomic_load_n(&event->destroyed, __ATOMIC_ACQUIRE))
        bury_event(event);
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    CALL_TAKES(cuEventCreate);
    CURRENT_CONTEXT(context);
    INVALID_IF(!event || flags & ~7u);
    INVALID_IF(flags & CU_EVENT_INTERPROCESS &&
               !(flags & CU_EVENT_DISABLE_TIMING)); /* as documented: they have no times */
    struct CUevent_st *created = handle_new(MAGIC_EVENT, sizeof *created);
    REFUSE_IF(!created, CUDA_ERROR_OUT_OF_MEMORY);
    created->context = context;
    created->context_id = context->id;
    created->device = context->device;
    created->flags = flags;
    if (flags & CU_EVENT_INTERPROCESS && !(created->shared = event_make_shared(context))) {
        handle_bury(created);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *event = created;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    CALL_TAKES(cuEventDestroy);
    DRIVER_CHECK();
    REFUSE_IF(!is_event(event), CUDA_ERROR_INVALID_HANDLE);
    struct sim_device *device = event->device->device;
    handle_kill(event);
    pthread_mutex_lock(&device->mutex); /* against event_done */
    bool idle = __atomic_load_n(&event->pending, __ATOMIC_ACQUIRE) == 0;
    __atomic_store_n(&event->destroyed, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&device->mutex);
    if (idle)
        bury_event(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

/* Tells other processes of a record, unless another thread has made a later one. */
static void publish_record(struct CUevent_st *event, uint64_t place)
{
    struct sim_device *device = event->device->device;
    pthread_mutex_lock(&device->mutex);
    if (event->place == place)
        event_publish(event->shared, sim_origin_here(device, place));
    pthread_mutex_unlock(&device->mutex);
}

void event_put(struct CUevent_st *event, struct CUstream_st *stream, uint64_t cost_ns)
{
    event_set_capture(event, NULL);
    __atomic_add_fetch(&event->pending, 1, __ATOMIC_ACQ_REL);
    struct sim_submission submission = {
        .kind = SIM_OPERATION_EVENT, .cost_ns = cost_ns, .note = event, .place = &event->place};
    uint64_t place = stream_submit(stream, &submission);
    if (event->shared)
        publish_record(event, place);
}

CUresult cuEventRecord(CUevent event, CUstream handle)
{
    CALL_TAKES(cuEventRecord);
    RESOLVE_STREAM(stream, handle);
    REFUSE_IF(!is_event(event), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(event->device != stream->context->device, CUDA_ERROR_INVALID_HANDLE);
    if (stream_capture(stream))
        return capture_record_event(event, stream);
    event_put(event, stream, event->device->identity->profile.calibration.event_ns);
    return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    RESOLVE_STREAM(resolved, stream);
    INVALID_IF(flags & ~1u);
    if (flags && stream_capture(resolved))
        return capture_add_event_record(resolved, event);
    return cuEventRecord(event, stream);
}

static struct sim_origin last_record(const struct CUevent_st *event)
{
    return event->shared ? event_origin(event->shared)
                         : sim_origin_here(event->device->device, event_place(event));
}

static bool is_done(const struct CUevent_st *event, const struct sim_origin *record)
{
    struct sim_device *device = event->device->device;
    if (event->shared)
        return sim_origin_query(device, record);
    return !record->place || __atomic_load_n(&event->pending, __ATOMIC_ACQUIRE) == 0 ||
           sim_queue_query(device, record->place);
}

CUresult cuEventQuery(CUevent event)
{
    CALL_TAKES(cuEventQuery);
    DRIVER_CHECK();
    REFUSE_IF(!is_event(event), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(event_capture(event), CUDA_ERROR_CAPTURED_EVENT);
    CHECK(capture_check_unsafe());
    struct sim_origin record = last_record(event);
    return is_done(event, &record) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    CALL_TAKES(cuEventSynchronize);
    DRIVER_CHECK();
    REFUSE_IF(!is_event(event), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(event_capture(event), CUDA_ERROR_CAPTURED_EVENT);
    CHECK(capture_check_unsafe());
    struct sim_origin record = last_record(event);
    if (event->shared)
        sim_origin_wait(event->device->device, &record);
    else if (record.place && __atomic_load_n(&event->pending, __ATOMIC_ACQUIRE))
        sim_queue_wait(event->device->device, record.place);
    call_has_waited();
    pool_trim_device(event->device, true);
    return CUDA_SUCCESS;
}

/* Reads when the last record was done; false where it is not, or has just been made again. */
static bool read_time(const struct CUevent_st *event, uint64_t *at_ns)
{
    struct sim_device *device = event->device->device;
    struct sim_origin record = last_record(event);
    if (!is_done(event, &record))
        return false;
    pthread_mutex_lock(&device->mutex);
    bool still_last = event->place == record.place;
    *at_ns = event->at_ns;
    pthread_mutex_unlock(&device->mutex);
    return still_last;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    DRIVER_CHECK();
    INVALID_IF(!milliseconds);
    REFUSE_IF(!is_event(start) || !is_event(end) || !event_place(start) || !event_place(end) ||
                  (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING ||
                  start->device != end->device,
              CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(event_capture(start) || event_capture(end), CUDA_ERROR_CAPTURED_EVENT);
    uint64_t start_ns, end_ns;
    REFUSE_IF(!read_time(start, &start_ns) || !read_time(end, &end_ns), CUDA_ERROR_NOT_READY);
    *milliseconds = (float)(((double)end_ns - (double)start_ns) / NS_PER_MS);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* Work that is not of this process on this device. */
struct other_work {
    struct sim_device *device;
    struct sim_origin origin;
    bool own; /* of this process, on another device */
};

static void wait_there(void *argument)
{
    struct other_work *other = argument;
    if (other->own)
        sim_queue_wait(other->device, other->origin.place);
    else
        sim_origin_wait(other->device, &other->origin);
    free(other);
}

/* A thread waits for it, and the stream for the thread: devices have timelines of their own, and
 * other processes tell nobody when their work is done. */
static CUresult wait_for_other(struct CUstream_st *stream, const struct other_work *work)
{
    struct other_work *other = malloc(sizeof *other);
    REFUSE_IF(!other, CUDA_ERROR_OUT_OF_MEMORY);
    *other = *work;
    CUresult result = stream_call(stream, wait_there, other);
    if (result != CUDA_SUCCESS)
        free(other);
    return result;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
    CALL_TAKES(cuStreamWaitEvent);
    RESOLVE_STREAM(stream, handle);
    REFUSE_IF(!is_event(event), CUDA_ERROR_INVALID_HANDLE);
    INVALID_IF(flags & ~1u);
    if (flags && stream_capture(stream))
        return capture_add_event_wait(stream, event);
    if (stream_capture(stream) || event_capture(event))
        return capture_wait_event(stream, event);
    struct sim_device *there = event->device->device;
    struct other_work work = {.device = there, .origin = last_record(event)};
    if (is_done(event, &work.origin))
        return CUDA_SUCCESS;
    work.own = work.origin.slot == there->machine->slot;
    if (!work.own || there != stream->context->device->device)
        return wait_for_other(stream, &work);
    stream_wait_place(stream, work.origin.place);
    return CUDA_SUCCESS;
}
