/* Nodes of few words: host functions, child graphs, events, and none at all. */
#include "graph.h"

CUresult graph_describe_host(const CUDA_HOST_NODE_PARAMS *params, struct graph_node *work)
{
    DRIVER_CHECK();
    INVALID_IF(!params || !params->fn);
    *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_HOST, .params.host = *params};
    return CUDA_SUCCESS;
}

CUresult graph_describe_event(CUgraphNodeType type, CUevent event, struct graph_node *work)
{
    DRIVER_CHECK();
    INVALID_IF(!is_event(event));
    *work = (struct graph_node){.type = type, .params.event = event};
    return CUDA_SUCCESS;
}

static bool holds_graph(const struct CUgraph_st *graph, const struct CUgraph_st *wanted)
{
    while (graph && graph != wanted)
        graph = graph->owner ? graph->owner->links.graph : NULL;
    return graph != NULL;
}

/* The child is copied, or, with the newer way to add a node, moved: then only the node's type is
 * described here, and the child is put into it when it stands (cuGraphAddNode_v2). */
CUresult graph_describe_child(const CUDA_CHILD_GRAPH_NODE_PARAMS *params, CUgraph graph,
                              struct graph_node *work)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(params->graph) || params->graph->capturing);
    bool moved = params->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    INVALID_IF(!moved && (params->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE ||
                          graph_has_memory_nodes(params->graph) ||
                          graph_contains(params->graph, CU_GRAPH_NODE_TYPE_CONDITIONAL)));
    INVALID_IF(moved && (params->graph->owner || holds_graph(graph, params->graph) ||
                         params->graph->only_exec));
    *work =
        (struct graph_node){.type = moved ? CU_GRAPH_NODE_TYPE_EMPTY : CU_GRAPH_NODE_TYPE_GRAPH};
    if (!moved)
        work->params.child = graph_copy(params->graph);
    return moved || work->params.child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, const CUDA_HOST_NODE_PARAMS *params)
{
    struct graph_node work;
    return graph_add(graph, dependencies, count, graph_describe_host(params, &work), &work, node);
}

GRAPH_NODE_CALLS(Host, CU_GRAPH_NODE_TYPE_HOST, CUDA_HOST_NODE_PARAMS,
                 graph_describe_host(params, &work))

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, CUgraph child)
{
    struct graph_node work;
    CUDA_CHILD_GRAPH_NODE_PARAMS params = {.graph = child};
    return graph_add(graph, dependencies, count, graph_describe_child(&params, graph, &work), &work,
                     node);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *child)
{
    return graph_tell(handle, CU_GRAPH_NODE_TYPE_GRAPH, child, sizeof *child);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count)
{
    DRIVER_CHECK();
    struct graph_node work = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return graph_attach(graph, dependencies, NULL, count, &work, node);
}

static CUresult add_event(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                          size_t count, CUgraphNodeType type, CUevent event)
{
    struct graph_node work;
    return graph_add(graph, dependencies, count, graph_describe_event(type, event, &work), &work,
                     node);
}

static CUresult get_event(CUgraphNode handle, CUgraphNodeType type, CUevent *event)
{
    return graph_tell(handle, type, event, sizeof *event);
}

static CUresult set_event(CUgraphNode handle, CUgraphNodeType type, CUevent event)
{
    struct graph_node *node = graph_node_of_type(handle, type), work;
    CHECK(node ? graph_describe_event(type, event, &work) : CUDA_ERROR_INVALID_VALUE);
    graph_work_replace(node, &work);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
                                   const CUgraphNode *dependencies, size_t count, CUevent event)
{
    return add_event(node, graph, dependencies, count, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    return set_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, CUevent event)
{
    return add_event(node, graph, dependencies, count, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    return set_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}
