/* Beginning and ending captures, and what can be asked of them. */
#include <stdlib.h>

#include "capture.h"
#include "twins.h"

static CUresult begin(CUstream handle, struct CUgraph_st *graph, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode)
{
    RESOLVE_STREAM(stream, handle);
    CUresult result = CUDA_SUCCESS;
    INVALID_IF((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED);
    REFUSE_IF(stream == &stream->context->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct capture *capture = calloc(1, sizeof *capture);
    struct CUgraph_st *made = graph ? graph : graph_new();
    if (!capture || !made)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&captures_mutex);
    if (result == CUDA_SUCCESS && stream->capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS) {
        capture->mode = mode;
        capture->graph = made;
        capture->owns_graph = !graph;
        if (!capture_begin_locked(capture, stream))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS &&
        !capture_set_add(&capture->branches[0].set, dependencies, data, count)) {
        capture_end_locked(capture);
        capture = NULL;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&captures_mutex);
    if (result == CUDA_SUCCESS)
        return result;
    free(capture);
    if (made && !graph)
        graph_delete(made);
    return result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    CALL_TAKES(cuStreamBeginCapture);
    return begin(stream, NULL, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Nodes that a capture may depend on: of its graph, with edges that may leave them. */
static CUresult check_nodes(const struct CUgraph_st *graph, const CUgraphNode *nodes,
                            const CUgraphEdgeData *data, size_t count)
{
    INVALID_IF(count && !nodes);
    for (size_t i = 0; i < count; i++) {
        struct graph_node *node = graph_node_of(nodes[i]);
        INVALID_IF(!node || node->links.graph != graph);
        CHECK(data ? graph_check_edge(node, NULL, &data[i]) : CUDA_SUCCESS);
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                                     size_t count, CUstreamCaptureMode mode)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || graph->capturing);
    CHECK(check_nodes(graph, dependencies, data, count));
    return begin(stream, graph, dependencies, data, count, mode);
}

static bool all_joined(const struct capture *capture)
{
    for (size_t i = 1; i < capture->branch_count; i++)
        if (!capture_set_reaches(capture->graph, &capture->branches[0].set,
                                 &capture->branches[i].set))
            return false;
    return true;
}

/* Whether the capture of a stream may be ended here and now. */
static CUresult check_end_locked(const struct CUstream_st *stream)
{
    const struct capture *capture = stream->capture;
    REFUSE_IF(capture == &capture_implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    REFUSE_IF(!capture, CUDA_ERROR_ILLEGAL_STATE);
    REFUSE_IF(capture->branches[0].stream != stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    REFUSE_IF(capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                  !pthread_equal(capture->thread, pthread_self()),
              CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    CALL_TAKES(cuStreamEndCapture);
    RESOLVE_STREAM(stream, handle);
    pthread_mutex_lock(&captures_mutex);
    CUresult result = check_end_locked(stream);
    if (result != CUDA_SUCCESS) {
        pthread_mutex_unlock(&captures_mutex);
        return result;
    }
    struct capture *capture = stream->capture;
    struct CUgraph_st *filled = capture->graph;
    bool owned = capture->owns_graph;
    if (capture->spoilt)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!all_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    capture_end_locked(capture);
    pthread_mutex_unlock(&captures_mutex);
    if (graph)
        *graph = result == CUDA_SUCCESS ? filled : NULL;
    if (owned && (result != CUDA_SUCCESS || !graph))
        graph_delete(filled);
    return result;
}

/* ---- questions ------------------------------------------------------------------------------- */

static CUstreamCaptureStatus status_of(const struct CUstream_st *stream)
{
    return !stream->capture          ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static bool has_data(const struct capture_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->data[i].from_port || set->data[i].type)
            return true;
    return false;
}

static CUresult get_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                         CUgraph *graph, const CUgraphNode **dependencies,
                         const CUgraphEdgeData **data, size_t *count)
{
    RESOLVE_STREAM(stream, handle);
    CUresult result = CUDA_SUCCESS;
    INVALID_IF(!status || (data && !dependencies));
    pthread_mutex_lock(&captures_mutex);
    if (stream->capture == &capture_implicit) { /* a question spoils nothing */
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else {
        *status = status_of(stream);
        if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
            const struct capture_set *set = &capture_branch_locked(stream->capture, stream)->set;
            if (id)
                *id = stream->capture->id;
            if (graph)
                *graph = stream->capture->graph;
            if (dependencies)
                *dependencies = set->nodes;
            if (data)
                *data = set->data;
            if (count)
                *count = set->count;
            if (dependencies && !data && has_data(set))
                result = CUDA_ERROR_LOSSY_QUERY;
        }
    }
    pthread_mutex_unlock(&captures_mutex);
    return result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return get_info(stream, status, NULL, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return get_info(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    return get_info(stream, status, id, graph, dependencies, NULL, count);
}

SAME_AS(cuStreamGetCaptureInfo_v3, get_info);

/* ---- changing what comes next ---------------------------------------------------------------- */

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *data, size_t count,
                                              unsigned int flags)
{
    RESOLVE_STREAM(stream, handle);
    CUresult result = CUDA_SUCCESS;
    INVALID_IF(flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    pthread_mutex_lock(&captures_mutex);
    struct capture *capture = stream->capture;
    if (!capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (capture == &capture_implicit)
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    else if (capture->spoilt)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else
        result = check_nodes(capture->graph, dependencies, data, count);
    if (result == CUDA_SUCCESS) {
        struct capture_set *set = &capture_branch_locked(capture, stream)->set;
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            set->count = 0;
        if (!capture_set_add(set, dependencies, data, count))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&captures_mutex);
    return result;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count,
                                           unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, count, flags);
}

TWIN(cuStreamBeginCaptureToGraph_ptsz,
     (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
      size_t count, CUstreamCaptureMode mode),
     cuStreamBeginCaptureToGraph(OWN(stream), graph, dependencies, data, count, mode))
TWIN(cuStreamGetCaptureInfo_v3_ptsz,
     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **dependencies, const CUgraphEdgeData **data, size_t *count),
     cuStreamGetCaptureInfo_v3(OWN(stream), status, id, graph, dependencies, data, count))
TWIN(cuStreamUpdateCaptureDependencies_ptsz,
     (CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags),
     cuStreamUpdateCaptureDependencies(OWN(stream), dependencies, count, flags))
TWIN(cuStreamUpdateCaptureDependencies_v2_ptsz,
     (CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *data, size_t count,
      unsigned int flags),
     cuStreamUpdateCaptureDependencies_v2(OWN(stream), dependencies, data, count, flags))
