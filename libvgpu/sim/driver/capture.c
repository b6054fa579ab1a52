/* Captures under way: which streams are in them, and what they refuse. See capture.h. */
#include "capture.h"

#include <stdlib.h>

pthread_mutex_t captures_mutex = PTHREAD_MUTEX_INITIALIZER;
struct capture capture_implicit;
static struct capture *captures;     /* all that are under way */
static unsigned int global_captures; /* of them in mode GLOBAL; read without the mutex */
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static __thread unsigned int
    own_captures; /* begun by this thread in another mode than RELAXED; or more */

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    INVALID_IF(!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* ---- captures under way ---------------------------------------------------------------------- */

struct capture_branch *capture_branch_locked(struct capture *capture,
                                             const struct CUstream_st *stream)
{
    for (size_t i = 0; i < capture->branch_count; i++)
        if (capture->branches[i].stream == stream)
            return &capture->branches[i];
    return NULL;
}

static bool blocks(const struct CUstream_st *stream, const struct CUctx_st *context)
{
    return stream->context == context && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

static bool captures_blocking(const struct capture *capture, const struct CUctx_st *context)
{
    for (size_t i = 0; i < capture->branch_count; i++)
        if (blocks(capture->branches[i].stream, context))
            return true;
    return false;
}

/* stream_capture looks without the mutex. */
static void set_capture(struct CUstream_st *stream, struct capture *capture)
{
    __atomic_store_n(&stream->capture, capture, __ATOMIC_RELAXED);
}

void capture_refresh_legacy_locked(struct CUctx_st *context)
{
    struct capture *capture = captures;
    while (capture && !captures_blocking(capture, context))
        capture = capture->next;
    set_capture(&context->legacy, capture ? &capture_implicit : NULL);
}

void capture_spoil_blocking_locked(const struct CUctx_st *context)
{
    for (struct capture *capture = captures; capture; capture = capture->next)
        if (captures_blocking(capture, context))
            capture->spoilt = true;
}

struct capture_branch *capture_join_locked(struct capture *capture, struct CUstream_st *stream)
{
    struct capture_branch *grown =
        realloc(capture->branches, (capture->branch_count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    capture->branches = grown;
    grown[capture->branch_count] = (struct capture_branch){.stream = stream};
    set_capture(stream, capture);
    capture->branch_count++;
    capture_refresh_legacy_locked(stream->context);
    return &grown[capture->branch_count - 1];
}

bool capture_begin_locked(struct capture *capture, struct CUstream_st *stream)
{
    static unsigned long long last_id;
    capture->thread = pthread_self();
    capture->id = ++last_id;
    capture->next = captures;
    captures = capture;
    if (!capture_join_locked(capture, stream)) {
        captures = capture->next;
        return false;
    }
    capture->graph->capturing = true;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
        __atomic_add_fetch(&global_captures, 1, __ATOMIC_RELAXED);
    own_captures += capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return true;
}

void capture_end_locked(struct capture *capture)
{
    struct capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
        __atomic_sub_fetch(&global_captures, 1, __ATOMIC_RELAXED);
    if (pthread_equal(capture->thread, pthread_self()))
        own_captures -= capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    for (size_t i = 0; i < capture->branch_count; i++) {
        set_capture(capture->branches[i].stream, NULL);
        capture_refresh_legacy_locked(capture->branches[i].stream->context);
        capture_set_clear(&capture->branches[i].set);
    }
    for (size_t i = 0; i < capture->event_count; i++)
        capture_set_clear(&capture->events[i].set);
    capture->graph->capturing = false;
    free(capture->branches);
    free(capture->events);
    free(capture);
}

/* Whether another stream of the capture comes after all that this one has in it. */
static bool is_joined_locked(const struct capture *capture, const struct capture_branch *branch)
{
    for (size_t i = 0; i < capture->branch_count; i++)
        if (&capture->branches[i] != branch &&
            capture_set_reaches(capture->graph, &capture->branches[i].set, &branch->set))
            return true;
    return false;
}

void capture_abandon(struct CUstream_st *stream)
{
    struct CUgraph_st *unfinished = NULL;
    pthread_mutex_lock(&captures_mutex);
    struct capture *capture = stream->capture;
    if (capture && capture != &capture_implicit) {
        struct capture_branch *branch = capture_branch_locked(capture, stream);
        if (branch == capture->branches) { /* nobody can end it any more */
            unfinished = capture->owns_graph ? capture->graph : NULL;
            capture_end_locked(capture);
        } else {
            if (!is_joined_locked(capture, branch))
                capture->spoilt = true;
            capture_set_clear(&branch->set);
            *branch = capture->branches[--capture->branch_count];
            capture_refresh_legacy_locked(stream->context);
        }
    }
    pthread_mutex_unlock(&captures_mutex);
    if (unfinished)
        graph_delete(unfinished);
}

/* ---- refusals -------------------------------------------------------------------------------- */

CUresult capture_check_unsafe(void)
{
    bool by_own = own_captures && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool by_any = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                  __atomic_load_n(&global_captures, __ATOMIC_RELAXED);
    if (__builtin_expect(!by_own && !by_any, 1))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&captures_mutex);
    CUresult result = CUDA_SUCCESS;
    for (struct capture *capture = captures; capture; capture = capture->next)
        if ((by_own && pthread_equal(capture->thread, pthread_self()) &&
             capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (by_any && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            capture->spoilt = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    pthread_mutex_unlock(&captures_mutex);
    return result;
}

static CUresult refuse_locked(struct CUstream_st *stream, CUresult why)
{
    if (stream->capture == &capture_implicit) {
        capture_spoil_blocking_locked(stream->context);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture)
        stream->capture->spoilt = true;
    return why;
}

CUresult capture_refuse(struct CUstream_st *stream)
{
    pthread_mutex_lock(&captures_mutex);
    CUresult result = refuse_locked(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_unlock(&captures_mutex);
    return result;
}

struct capture_branch *capture_usable_branch_locked(struct CUstream_st *stream, CUresult *why)
{
    struct capture *capture = stream->capture;
    if (capture == &capture_implicit) {
        *why = refuse_locked(stream, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        return NULL;
    }
    *why = !capture          ? CUDA_ERROR_ILLEGAL_STATE /* ended by another thread */
           : capture->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                             : CUDA_SUCCESS;
    return *why == CUDA_SUCCESS ? capture_branch_locked(capture, stream) : NULL;
}

/* ---- events: what joins streams ------------------------------------------------------------ */

/* The place of an event in a capture, made if `make`. */
static struct capture_event *find_event_locked(struct capture *capture, struct CUevent_st *event,
                                               bool make)
{
    for (size_t i = 0; i < capture->event_count; i++)
        if (capture->events[i].event == event)
            return &capture->events[i];
    struct capture_event *grown =
        make ? realloc(capture->events, (capture->event_count + 1) * sizeof *grown) : NULL;
    if (!grown)
        return NULL;
    capture->events = grown;
    grown[capture->event_count] = (struct capture_event){.event = event};
    return &grown[capture->event_count++];
}

CUresult capture_record_event(struct CUevent_st *event, struct CUstream_st *stream)
{
    CUresult result;
    pthread_mutex_lock(&captures_mutex);
    struct capture_branch *branch = capture_usable_branch_locked(stream, &result);
    if (branch) {
        struct capture_event *place = find_event_locked(stream->capture, event, true);
        if (place)
            place->set.count = 0;
        if (place &&
            capture_set_add(&place->set, branch->set.nodes, branch->set.data, branch->set.count)) {
            event_set_capture(event, stream->capture);
            event->capture_id = stream->capture->id;
        } else {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&captures_mutex);
    return result;
}

static bool under_way_locked(const struct capture *wanted, unsigned long long id)
{
    struct capture *capture = captures;
    while (capture && (capture != wanted || capture->id != id))
        capture = capture->next;
    return capture != NULL;
}

static CUresult wait_event_locked(struct CUstream_st *stream, struct CUevent_st *event)
{
    struct capture *capture = event_capture(event); /* a record outside of captures clears it */
    if (stream->capture == &capture_implicit)
        return refuse_locked(stream, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    /* one of them was captured a moment ago */
    REFUSE_IF(!capture && !stream->capture, CUDA_ERROR_CAPTURED_EVENT);
    if (!capture) /* a capture would depend on work outside */
        return refuse_locked(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    REFUSE_IF(!under_way_locked(capture, event->capture_id), CUDA_ERROR_CAPTURED_EVENT);
    if (stream->capture && stream->capture != capture) {
        capture->spoilt = true;
        return refuse_locked(stream, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    REFUSE_IF(capture->spoilt, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (stream == &stream->context->legacy) { /* which can never be captured */
        capture->spoilt = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    struct capture_branch *branch = stream->capture ? capture_branch_locked(capture, stream)
                                                    : capture_join_locked(capture, stream);
    struct capture_event *place = find_event_locked(capture, event, false);
    return branch && place &&
                   capture_set_add(&branch->set, place->set.nodes, place->set.data,
                                   place->set.count)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_wait_event(struct CUstream_st *stream, struct CUevent_st *event)
{
    pthread_mutex_lock(&captures_mutex);
    CUresult result = wait_event_locked(stream, event);
    pthread_mutex_unlock(&captures_mutex);
    return result;
}
