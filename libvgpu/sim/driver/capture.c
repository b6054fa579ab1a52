/*
 * Stream capture: work put onto a capturing stream becomes nodes of a graph, in the order in which
 * it came. Other streams join by waiting for an event recorded in the capture. As documented for
 * the real driver, calls that could touch other streams' work are refused beside a capture, by its
 * mode, and spoil it.
 */
#include "capture.h"

#include <stdlib.h>

static pthread_mutex_t captures_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;     /* all that are under way */
static unsigned int global_captures; /* of them in mode GLOBAL; read without the mutex */
static unsigned long long next_capture_id;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static __thread unsigned int own_captures; /* begun by this thread in another mode than RELAXED */

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

CUresult capture_check_unsafe(void)
{
    bool by_own = own_captures && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool by_any = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                  __atomic_load_n(&global_captures, __ATOMIC_RELAXED);
    if (__builtin_expect(!by_own && !by_any, 1))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&captures_mutex);
    for (struct capture *capture = captures; capture; capture = capture->next)
        if ((by_own && pthread_equal(capture->thread, pthread_self()) &&
             capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (by_any && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL))
            capture->spoilt = true;
    pthread_mutex_unlock(&captures_mutex);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_refuse(struct CUstream_st *stream)
{
    stream->capture->spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_add(struct CUstream_st *stream, const struct graph_node *node)
{
    if (stream->capture->spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return graph_append(stream->capture->graph, node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_record_event(struct CUevent_st *event, struct CUstream_st *stream)
{
    if (stream->capture->spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture = stream->capture;
    event->capture_id = stream->capture->id;
    return CUDA_SUCCESS;
}

static bool under_way(const struct capture *wanted, unsigned long long id)
{
    pthread_mutex_lock(&captures_mutex);
    struct capture *capture = captures;
    while (capture && (capture != wanted || capture->id != id))
        capture = capture->next;
    pthread_mutex_unlock(&captures_mutex);
    return capture != NULL;
}

CUresult capture_wait_event(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (!event->capture) { /* a capture would depend on work outside */
        stream->capture->spoilt = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!under_way(event->capture, event->capture_id))
        return CUDA_ERROR_CAPTURED_EVENT;
    if (stream->capture && stream->capture != event->capture) {
        stream->capture->spoilt = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!stream->capture) {
        struct capture *capture = event->capture;
        struct CUstream_st **grown =
            realloc(capture->joined, (capture->joined_count + 1) * sizeof *grown);
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        grown[capture->joined_count++] = stream;
        capture->joined = grown;
        stream->capture = capture;
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == &stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof *capture);
    if (!capture || !(capture->graph = graph_new())) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = pthread_self();
    pthread_mutex_lock(&captures_mutex);
    capture->id = ++next_capture_id;
    capture->next = captures;
    captures = capture;
    global_captures += mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    pthread_mutex_unlock(&captures_mutex);
    own_captures += mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    stream->capture = capture;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    struct capture *capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(capture->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    pthread_mutex_lock(&captures_mutex);
    struct capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    global_captures -= capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    pthread_mutex_unlock(&captures_mutex);
    own_captures -= capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    stream->capture = NULL;
    for (size_t i = 0; i < capture->joined_count; i++)
        capture->joined[i]->capture = NULL;
    if (capture->spoilt) {
        graph_delete(capture->graph);
        if (graph)
            *graph = NULL;
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (graph) {
        *graph = capture->graph;
    } else {
        graph_delete(capture->graph);
    }
    free(capture->joined);
    free(capture);
    return result;
}

static CUstreamCaptureStatus status_of(const struct CUstream_st *stream)
{
    return !stream->capture          ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(stream);
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id)
            *id = stream->capture->id;
        if (graph)
            *graph = stream->capture->graph;
        if (dependencies)
            *dependencies = NULL;
        if (count)
            *count = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}
