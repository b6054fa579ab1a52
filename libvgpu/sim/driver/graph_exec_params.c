/* Changing single nodes of an executable graph: as though the node had been so when the graph was
 * instantiated. Launches made before are not touched. */
#include "graph_exec.h"

/* Exchanges the work of a node, which it takes over or gives up. */
static CUresult exchange(CUgraphExec exec, struct graph_node *node, struct graph_node *work)
{
    if (graph_check_change(node, work, exec->flags) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        graph_work_release(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    graph_work_replace(node, work);
    graph_exec_changed(exec);
    return CUDA_SUCCESS;
}

static struct graph_node *find_node(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type)
{
    struct graph_node *node = graph_exec_is_exec(exec) ? graph_exec_find(exec, handle) : NULL;
    return node && node->type == type ? node : NULL;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode handle,
                                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct graph_node *node = find_node(exec, handle, CU_GRAPH_NODE_TYPE_KERNEL), work;
    CHECK(node ? graph_describe_kernel(params, &work) : CUDA_ERROR_INVALID_VALUE);
    struct graph_attributes *attributes = node->attributes; /* they are not parameters */
    node->attributes = NULL;
    CUresult result = exchange(exec, node, &work);
    node->attributes = attributes;
    return result;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    INVALID_IF(!params);
    CUDA_KERNEL_NODE_PARAMS newer = graph_newer_kernel_params(params);
    return cuGraphExecKernelNodeSetParams_v2(exec, node, &newer);
}

static bool is_line(const CUDA_MEMCPY3D *copy)
{
    return copy->Height == 1 && copy->Depth == 1;
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                        const CUDA_MEMCPY3D *params, CUcontext context)
{
    struct graph_node *node = find_node(exec, handle, CU_GRAPH_NODE_TYPE_MEMCPY), work;
    CUresult result = node ? graph_describe_copy(params, context, &work) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (!is_line(&node->params.copy) || !is_line(params)))
        result = CUDA_ERROR_INVALID_VALUE; /* only copies of one dimension may change */
    return result == CUDA_SUCCESS ? exchange(exec, node, &work) : result;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    struct graph_node *node = find_node(exec, handle, CU_GRAPH_NODE_TYPE_MEMSET), work;
    CHECK(node ? graph_describe_fill(params, context, &work) : CUDA_ERROR_INVALID_VALUE);
    return exchange(exec, node, &work);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                      const CUDA_HOST_NODE_PARAMS *params)
{
    struct graph_node *node = find_node(exec, handle, CU_GRAPH_NODE_TYPE_HOST), work;
    CHECK(node ? graph_describe_host(params, &work) : CUDA_ERROR_INVALID_VALUE);
    return exchange(exec, node, &work);
}

static CUresult set_event(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type, CUevent event)
{
    struct graph_node *node = find_node(exec, handle, type), work;
    CHECK(node ? graph_describe_event(type, event, &work) : CUDA_ERROR_INVALID_VALUE);
    return exchange(exec, node, &work);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return set_event(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return set_event(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode handle,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    struct graph_node *node = find_node(exec, handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP), work;
    CHECK(node ? graph_describe_batch(params, &work) : CUDA_ERROR_INVALID_VALUE);
    return exchange(exec, node, &work);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraph child)
{
    DRIVER_CHECK();
    struct graph_node *node = find_node(exec, handle, CU_GRAPH_NODE_TYPE_GRAPH);
    CUgraphExecUpdateResultInfo info;
    INVALID_IF(!node || !graph_is_graph(child));
    CUresult result = graph_update(node->params.child, child, exec->flags, &info);
    if (result == CUDA_SUCCESS)
        graph_exec_changed(exec);
    return result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    DRIVER_CHECK();
    INVALID_IF(!params);
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphExecKernelNodeSetParams_v2(exec, node, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphExecMemcpyNodeSetParams(exec, node, &params->memcpy.copyParams,
                                              params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: /* the newer structure begins with the older */
        return cuGraphExecMemsetNodeSetParams(
            exec, node, (const CUDA_MEMSET_NODE_PARAMS *)&params->memset, params->memset.ctx);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuGraphExecHostNodeSetParams(exec, node, &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cuGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphExecEventRecordNodeSetEvent(exec, node, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphExecEventWaitNodeSetEvent(exec, node, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return cuGraphExecBatchMemOpNodeSetParams(exec, node, &params->memOp);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* ---- enabling: of kernels, copies and fills ----------------------------------------------- */

static struct graph_node *find_switchable(CUgraphExec exec, CUgraphNode handle)
{
    struct graph_node *node = graph_exec_is_exec(exec) ? graph_exec_find(exec, handle) : NULL;
    return node && (node->type == CU_GRAPH_NODE_TYPE_KERNEL ||
                    node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                    node->type == CU_GRAPH_NODE_TYPE_MEMSET)
               ? node
               : NULL;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int enabled)
{
    DRIVER_CHECK();
    struct graph_node *node = find_switchable(exec, handle);
    INVALID_IF(!node);
    node->disabled = !enabled;
    graph_exec_changed(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned int *enabled)
{
    DRIVER_CHECK();
    struct graph_node *node = find_switchable(exec, handle);
    INVALID_IF(!node || !enabled);
    *enabled = !node->disabled;
    return CUDA_SUCCESS;
}
