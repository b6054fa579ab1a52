/* Graphs of kernels, copies and fills. A launch is one operation of the queue with the costs of all
 * nodes together: nodes run one after the other, and nothing comes between them. */
#include <stdlib.h>

#include "capture.h"

struct CUgraphExec_st {
    uint64_t magic;
    struct CUgraph_st *graph; /* a copy of its own */
    uint64_t cost_ns;
    uint32_t kernels;
};

struct CUgraph_st *graph_new(void)
{
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (graph) {
        graph->magic = MAGIC_GRAPH;
        graph->last = &graph->first;
    }
    return graph;
}

void graph_delete(struct CUgraph_st *graph)
{
    while (graph->first) {
        struct graph_node *node = graph->first;
        graph->first = node->next;
        free(node);
    }
    graph->magic = 0;
    free(graph);
}

struct graph_node *graph_append(struct CUgraph_st *graph, const struct graph_node *node)
{
    struct graph_node *copy = malloc(sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *node;
    copy->graph = graph;
    copy->next = NULL;
    *graph->last = copy;
    graph->last = &copy->next;
    graph->count++;
    return copy;
}

static struct CUgraph_st *copy_graph(const struct CUgraph_st *graph)
{
    struct CUgraph_st *copy = graph_new();
    for (const struct graph_node *node = graph->first; copy && node; node = node->next)
        if (!graph_append(copy, node)) {
            graph_delete(copy);
            return NULL;
        }
    return copy;
}

static bool is_graph(const struct CUgraph_st *graph)
{
    return graph && graph->magic == MAGIC_GRAPH;
}

static bool is_exec(const struct CUgraphExec_st *exec)
{
    return exec && exec->magic == MAGIC_EXEC;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    DRIVER_CHECK();
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = graph_new();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    DRIVER_CHECK();
    if (!is_graph(graph))
        return CUDA_ERROR_INVALID_VALUE;
    graph_delete(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!node || !is_graph(graph) || !params || (count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    struct launch launch = {.grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
                            .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
                            .shared_bytes = params->sharedMemBytes,
                            .params = params->kernelParams,
                            .extra = params->extra};
    struct graph_node added = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernels = 1};
    CUfunction function = params->func ? params->func : (CUfunction)params->kern;
    result = launch_describe(function, context->device, &launch, &added.cost_ns);
    if (result != CUDA_SUCCESS)
        return result;
    *node = (CUgraphNode)graph_append(graph, &added);
    return *node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS newer = {.func = params->func,
                                     .gridDimX = params->gridDimX,
                                     .gridDimY = params->gridDimY,
                                     .gridDimZ = params->gridDimZ,
                                     .blockDimX = params->blockDimX,
                                     .blockDimY = params->blockDimY,
                                     .blockDimZ = params->blockDimZ,
                                     .sharedMemBytes = params->sharedMemBytes,
                                     .kernelParams = params->kernelParams,
                                     .extra = params->extra};
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &newer);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    DRIVER_CHECK();
    if (!is_graph(graph) || !count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!nodes) {
        *count = graph->count;
        return CUDA_SUCCESS;
    }
    size_t filled = 0;
    for (struct graph_node *node = graph->first; node && filled < *count; node = node->next)
        nodes[filled++] = (CUgraphNode)node;
    for (size_t i = filled; i < *count; i++)
        nodes[i] = NULL;
    *count = filled;
    return CUDA_SUCCESS;
}

/* ---- executable graphs ----------------------------------------------------------------------- */

static CUresult load_exec(struct CUgraphExec_st *exec, const struct CUgraph_st *graph)
{
    struct CUgraph_st *copy = copy_graph(graph);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (exec->graph)
        graph_delete(exec->graph);
    exec->graph = copy;
    exec->cost_ns = 0;
    exec->kernels = 0;
    for (const struct graph_node *node = copy->first; node; node = node->next) {
        exec->cost_ns += node->cost_ns;
        exec->kernels += node->kernels;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    DRIVER_CHECK();
    (void)flags; /* uploading and freeing on launch change nothing here */
    if (!exec || !is_graph(graph))
        return CUDA_ERROR_INVALID_VALUE;
    struct CUgraphExec_st *created = calloc(1, sizeof *created);
    if (!created)
        return CUDA_ERROR_OUT_OF_MEMORY;
    created->magic = MAGIC_EXEC;
    CUresult result = load_exec(created, graph);
    if (result == CUDA_SUCCESS)
        *exec = created;
    else
        free(created);
    return result;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_bytes)
{
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = '\0';
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_bytes)
{
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphInstantiateWithFlags(exec, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

/* Takes the new graph if it has the same nodes in the same order. */
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result)
{
    DRIVER_CHECK();
    if (!is_exec(exec) || !is_graph(graph) || !result)
        return CUDA_ERROR_INVALID_VALUE;
    *result = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    const struct graph_node *one = exec->graph->first, *other = graph->first;
    while (one && other && one->type == other->type) {
        one = one->next;
        other = other->next;
    }
    if (one || other) {
        result->result = CU_GRAPH_EXEC_UPDATE_ERROR;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    return load_exec(exec, graph);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                           CUgraphExecUpdateResult *result)
{
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult error = cuGraphExecUpdate_v2(exec, graph, &info);
    if (error_node)
        *error_node = NULL;
    if (result)
        *result = info.result;
    return error;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    return result != CUDA_SUCCESS ? result
           : is_exec(exec)        ? CUDA_SUCCESS
                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_exec(exec))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return capture_refuse(stream); /* child graphs are not modelled */
    for (const struct graph_node *node = exec->graph->first; node; node = node->next)
        if (node->run)
            node->run(node);
    struct sim_submission submission = {
        .cost_ns = exec->cost_ns, .kind = SIM_OPERATION_KERNEL, .kernels = exec->kernels};
    stream_submit(stream, &submission);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    DRIVER_CHECK();
    if (!is_exec(exec))
        return CUDA_ERROR_INVALID_VALUE;
    graph_delete(exec->graph);
    exec->magic = 0;
    free(exec);
    return CUDA_SUCCESS;
}
