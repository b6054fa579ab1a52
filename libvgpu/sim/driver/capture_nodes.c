/* What becomes of work that is put onto a capturing stream: nodes of the graph. */
#include "capture.h"

/* Marks the edges by which a dependent launch may begin while a kernel before it ends. */
static void make_programmatic(const struct capture_set *set, const struct graph_node *work)
{
    if (!work->dependent)
        return;
    for (size_t i = 0; i < set->count; i++)
        if (((struct graph_node *)set->nodes[i])->type == CU_GRAPH_NODE_TYPE_KERNEL)
            set->data[i] = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                             .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
}

/* Adds a work, which it takes over or gives up, behind the dependencies of the stream. */
static CUresult add_locked(struct CUstream_st *stream, struct graph_node *work)
{
    CUresult result;
    CUgraphNode node;
    struct capture_branch *branch = capture_usable_branch_locked(stream, &result);
    if (!branch) {
        graph_work_release(work);
        return result;
    }
    make_programmatic(&branch->set, work);
    CHECK(graph_attach(stream->capture->graph, branch->set.nodes, branch->set.data,
                       branch->set.count, work, &node));
    branch->set.count = 0;
    return capture_set_add(&branch->set, &node, NULL, 1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add(struct CUstream_st *stream, struct graph_node *work)
{
    pthread_mutex_lock(&captures_mutex);
    CUresult result = add_locked(stream, work);
    pthread_mutex_unlock(&captures_mutex);
    return result;
}

CUresult capture_add(struct CUstream_st *stream, const struct graph_node *node)
{
    struct graph_node work = *node;
    CHECK(graph_work_complete(&work, stream->context));
    return add(stream, &work);
}

CUresult capture_add_host(struct CUstream_st *stream, CUhostFn function, void *argument)
{
    struct graph_node work;
    CUDA_HOST_NODE_PARAMS params = {function, argument};
    CHECK(graph_describe_host(&params, &work));
    return add(stream, &work);
}

CUresult capture_add_batch(struct CUstream_st *stream, CUstreamBatchMemOpParams *operations,
                           unsigned int count)
{
    struct graph_node work;
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {
        .ctx = stream->context, .count = count, .paramArray = operations};
    CHECK(graph_describe_batch(&params, &work));
    return add(stream, &work);
}

CUresult capture_add_launch(struct CUstream_st *stream, const struct CUgraph_st *graph)
{
    struct graph_node work = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    if (graph_has_memory_nodes(graph)) /* which cannot be in a copy */
        return capture_refuse(stream);
    work.params.child = graph_copy(graph);
    return work.params.child ? add(stream, &work) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_add_allocation(struct CUstream_st *stream, struct CUmemPoolHandle_st *pool,
                                uint64_t bytes, CUdeviceptr *address)
{
    struct graph_node work;
    CUresult result;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                   .id = pool ? pool->device->ordinal
                                              : stream->context->device->ordinal}},
        .bytesize = bytes};
    pthread_mutex_lock(&captures_mutex);
    if (capture_usable_branch_locked(stream, &result))
        result = graph_describe_allocation(&params, stream->capture->graph, &work);
    if (result == CUDA_SUCCESS)
        result = add_locked(stream, &work);
    pthread_mutex_unlock(&captures_mutex);
    if (result == CUDA_SUCCESS)
        *address = params.dptr;
    return result;
}

CUresult capture_add_free(struct CUstream_st *stream, CUdeviceptr address)
{
    struct graph_node work;
    CUresult result;
    pthread_mutex_lock(&captures_mutex);
    if (capture_usable_branch_locked(stream, &result))
        result = graph_describe_free(address, stream->capture->graph, &work);
    if (result == CUDA_SUCCESS)
        result = add_locked(stream, &work);
    pthread_mutex_unlock(&captures_mutex);
    return result;
}

static CUresult add_event(struct CUstream_st *stream, CUgraphNodeType type,
                          struct CUevent_st *event)
{
    struct graph_node work;
    CHECK(graph_describe_event(type, event, &work));
    return add(stream, &work);
}

CUresult capture_add_event_record(struct CUstream_st *stream, struct CUevent_st *event)
{
    return add_event(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult capture_add_event_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    return add_event(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}
