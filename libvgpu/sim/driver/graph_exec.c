#include "graph_exec.h"

#include <stdlib.h>

#include "capture.h"

#define ALL_FLAGS \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | \
     CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

bool graph_exec_is_exec(const struct CUgraphExec_st *exec)
{
    return handle_is(MAGIC_EXEC, exec);
}

static struct graph_node *find_in(struct CUgraph_st *graph, unsigned long long original_id)
{
    for (struct graph_node *node = graph->first; node; node = node->links.next) {
        if (node->links.original_id == original_id)
            return node;
        struct graph_node *found = NULL;
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            found = find_in(node->params.child, original_id);
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            for (unsigned int i = 0; !found && i < node->params.conditional.size; i++)
                found = find_in(node->params.conditional.phGraph_out[i], original_id);
        if (found)
            return found;
    }
    return NULL;
}

struct graph_node *graph_exec_find(struct CUgraphExec_st *exec, CUgraphNode handle)
{
    struct graph_node *node = graph_node_of(handle);
    return node ? find_in(exec->graph, node->links.id) : NULL;
}

void graph_exec_changed(struct CUgraphExec_st *exec)
{
    if (exec->program)
        graph_program_drop(exec->program);
    exec->program = NULL;
}

/* Makes the program again where something changed, for which its kernels may need more. */
static CUresult make_program(struct CUgraphExec_st *exec)
{
    if (exec->program)
        return CUDA_SUCCESS;
    CUresult result = graph_prepare_kernels(exec->graph);
    if (result == CUDA_SUCCESS)
        exec->program = graph_program_make(exec->graph);
    return result == CUDA_SUCCESS && !exec->program ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* ---- instantiating --------------------------------------------------------------------------- */

/* A node of a cycle in the graph or one inside it. */
static struct graph_node *find_cycle(struct CUgraph_st *graph)
{
    struct graph_node **order = malloc((graph->count + 1) * sizeof(struct graph_node *));
    struct graph_node *found = order ? graph_sort(graph, order) : graph->first;
    free(order);
    for (struct graph_node *node = graph->first; !found && node; node = node->links.next) {
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            found = find_cycle(node->params.child);
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            for (unsigned int i = 0; !found && i < node->params.conditional.size; i++)
                found = find_cycle(node->params.conditional.phGraph_out[i]);
    }
    return found;
}

static bool has_unused_condition(const struct CUgraph_st *graph)
{
    const struct graph_condition *condition = graph->conditions;
    while (condition && condition->used)
        condition = condition->next;
    return condition != NULL;
}

/* What a graph that kernels may launch must not hold, NULL if all is well. */
static struct graph_node *find_undevicely(const struct CUgraph_st *graph)
{
    for (struct graph_node *node = graph->first; node; node = node->links.next) {
        struct graph_node *found = NULL;
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            found = find_undevicely(node->params.child);
        else if (node->type != CU_GRAPH_NODE_TYPE_KERNEL &&
                 node->type != CU_GRAPH_NODE_TYPE_MEMCPY && node->type != CU_GRAPH_NODE_TYPE_MEMSET)
            found = node;
        if (found)
            return found;
    }
    return NULL;
}

static CUgraphInstantiateResult check_graph(struct CUgraph_st *graph, uint64_t flags,
                                            struct graph_node **culprit)
{
    *culprit = find_cycle(graph);
    if (*culprit)
        return CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    if (has_unused_condition(graph))
        return CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    if (!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH))
        return CUDA_GRAPH_INSTANTIATE_SUCCESS;
    *culprit = find_undevicely(graph);
    if (*culprit)
        return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return graph->first ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
}

static void delete_exec(struct CUgraphExec_st *exec)
{
    graph_exec_changed(exec);
    if (exec->done)
        cuEventDestroy_v2(exec->done);
    if (exec->source)
        exec->source->only_exec = NULL;
    graph_delete(exec->graph);
    handle_bury(exec);
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    DRIVER_CHECK();
    params->hErrNode_out = NULL;
    params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    uint64_t both =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    INVALID_IF(!exec || !graph_is_graph(graph) || graph->capturing ||
               params->flags & ~(uint64_t)ALL_FLAGS || (params->flags & both) == both);
    struct graph_node *culprit;
    CUgraphInstantiateResult why = check_graph(graph, params->flags, &culprit);
    bool unique = graph_has_memory_nodes(graph);
    if (why != CUDA_GRAPH_INSTANTIATE_SUCCESS || (unique && graph->only_exec)) {
        params->hErrNode_out = (CUgraphNode)culprit;
        params->result_out =
            why == CUDA_GRAPH_INSTANTIATE_SUCCESS ? CUDA_GRAPH_INSTANTIATE_ERROR : why;
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct CUgraph_st *copy = graph_copy(graph);
    struct CUgraphExec_st *created = copy ? handle_new(MAGIC_EXEC, sizeof *created) : NULL;
    if (!created) {
        if (copy)
            graph_delete(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    created->graph = copy;
    created->flags = params->flags;
    CUresult result = make_program(created);
    if (result != CUDA_SUCCESS) {
        delete_exec(created);
        return result;
    }
    if (unique) {
        created->source = graph;
        graph->only_exec = created;
    }
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    *exec = created;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CALL_TAKES(cuGraphInstantiate);
    INVALID_IF(!params);
    CHECK(instantiate(exec, graph, params));
    if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        CHECK(cuGraphUpload(*exec, params->hUploadStream));
    return CUDA_SUCCESS;
}

/* Uploading needs a stream, which only the form with parameters has. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    CALL_TAKES(cuGraphInstantiate);
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = flags};
    INVALID_IF(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
    return instantiate(exec, graph, &params);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_bytes)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUresult result = instantiate(exec, graph, &params);
    if (error_node)
        *error_node = params.hErrNode_out;
    if (log && log_bytes)
        *log = '\0';
    return result;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_bytes)
{
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_exec_is_exec(exec) || !flags);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_exec_is_exec(exec));
    delete_exec(exec);
    return CUDA_SUCCESS;
}

/* ---- launching ------------------------------------------------------------------------------- */

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!graph_exec_is_exec(exec));
    if (stream_capture(stream))
        return capture_refuse(stream);
    CHECK(make_program(exec));
    graph_program_prepare(exec->program, stream->id);
    return CUDA_SUCCESS;
}

/* Launches of one executable graph are in order, also in different streams. */
static CUresult wait_for_last(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    if (!exec->done || exec->stream_id == stream->id)
        return CUDA_SUCCESS;
    return cuStreamWaitEvent(stream, exec->done, 0);
}

static CUresult mark_end(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    CUresult result = CUDA_SUCCESS;
    if (exec->done && exec->done->device != stream->context->device) {
        cuEventDestroy_v2(exec->done);
        exec->done = NULL;
    }
    if (!exec->done) {
        INVALID_IF(context_stack_is_full());
        context_stack_push(
            stream->context); /* also while another thread has it, a green one, current */
        result = cuEventCreate(&exec->done, CU_EVENT_DISABLE_TIMING);
        cuCtxPopCurrent_v2(NULL);
    }
    if (result == CUDA_SUCCESS)
        result = cuEventRecord(exec->done, stream);
    exec->stream_id = stream->id;
    return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    CALL_TAKES(cuGraphLaunch);
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!graph_exec_is_exec(exec));
    if (__builtin_expect(stream_capture(stream) != NULL, 0))
        return capture_add_launch(stream, exec->graph);
    CHECK(make_program(exec));
    CHECK(wait_for_last(exec, stream));
    CHECK(graph_program_launch(exec->program, stream,
                               exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    if (graph_program_is_ordered(exec->program))
        CHECK(mark_end(exec, stream));
    return CUDA_SUCCESS;
}

/* ---- updating -------------------------------------------------------------------------------- */

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    DRIVER_CHECK();
    if (info)
        *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    INVALID_IF(!graph_exec_is_exec(exec) || !graph_is_graph(graph) || !info || graph->capturing);
    CUresult result = graph_update(exec->graph, graph, exec->flags, info);
    graph_exec_changed(exec);
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                           CUgraphExecUpdateResult *result)
{
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult error = cuGraphExecUpdate_v2(exec, graph, &info);
    if (error_node)
        *error_node = info.errorNode;
    if (result)
        *result = info.result;
    return error;
}
