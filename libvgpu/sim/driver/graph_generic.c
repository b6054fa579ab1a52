/* Nodes of any kind by one tagged parameter structure, and their parameters by the same. */
#include "graph.h"

CUresult graph_describe(CUgraphNodeParams *params, CUgraph graph, struct graph_node *work)
{
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return graph_describe_kernel(&params->kernel, work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return graph_describe_copy(&params->memcpy.copyParams, params->memcpy.copyCtx, work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS fill = {params->memset.dst,   params->memset.pitch,
                                        params->memset.value, params->memset.elementSize,
                                        params->memset.width, params->memset.height};
        return graph_describe_fill(&fill, params->memset.ctx, work);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        return graph_describe_host(&params->host, work);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return graph_describe_child(&params->graph, graph, work);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_EMPTY};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return graph_describe_event(params->type, params->eventWait.event, work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return graph_describe_event(params->type, params->eventRecord.event, work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return graph_describe_allocation(&params->alloc, graph, work);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return graph_describe_free(params->free.dptr, graph, work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return graph_describe_batch(&params->memOp, work);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return graph_describe_conditional(&params->conditional, graph, work);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
    DRIVER_CHECK();
    struct graph_node work;
    INVALID_IF(!params || !node || !graph_is_graph(graph));
    CUresult result = graph_describe(params, graph, &work);
    if (result == CUDA_SUCCESS)
        result = graph_attach(graph, dependencies, data, count, &work, node);
    if (result == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_GRAPH &&
        work.type == CU_GRAPH_NODE_TYPE_EMPTY) { /* the child is moved, now that nothing can fail */
        struct graph_node *added = (struct graph_node *)*node;
        added->type = CU_GRAPH_NODE_TYPE_GRAPH;
        added->params.child = params->graph.graph;
        added->params.child->owner = added;
    }
    if (result == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        graph_use_condition(graph, params->conditional.handle);
    return result;
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t count, CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, params);
}

CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams *params)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of(handle), work;
    INVALID_IF(!node || !params || params->type != node->type);
    /* Child graphs and bodies are changed through their own handles. */
    REFUSE_IF(node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                  node->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
                  node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ||
                  (node->type == CU_GRAPH_NODE_TYPE_GRAPH &&
                   params->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE),
              CUDA_ERROR_NOT_SUPPORTED);
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
        return cuGraphKernelNodeSetParams_v2(handle, &params->kernel);
    CHECK(graph_describe(params, node->links.graph, &work));
    graph_work_replace(node, &work);
    return CUDA_SUCCESS;
}
