/* Edges between the nodes of a graph, kept at both ends, and the order in which nodes run. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static const CUgraphEdgeData no_data;

static bool is_plain(const CUgraphEdgeData *data)
{
    return !data || memcmp(data, &no_data, sizeof no_data) == 0;
}

/* Ports and the programmatic type are for kernels. */
CUresult graph_check_edge(const struct graph_node *from, const struct graph_node *to,
                          const CUgraphEdgeData *data)
{
    if (is_plain(data))
        return CUDA_SUCCESS;
    bool kernels =
        from->type == CU_GRAPH_NODE_TYPE_KERNEL && (!to || to->type == CU_GRAPH_NODE_TYPE_KERNEL);
    INVALID_IF(data->to_port ||
               memcmp(data->reserved, no_data.reserved, sizeof no_data.reserved) != 0 ||
               data->from_port > 2 || data->type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    INVALID_IF(data->from_port && from->type != CU_GRAPH_NODE_TYPE_KERNEL);
    INVALID_IF(data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC &&
               (!kernels || !data->from_port));
    return CUDA_SUCCESS;
}

static bool push(struct graph_edge **edges, size_t *count, struct graph_node *node,
                 const CUgraphEdgeData *data)
{
    if ((*count & (*count - 1)) == 0) { /* full at every power of two */
        struct graph_edge *grown = realloc(*edges, (*count ? 2 * *count : 1) * sizeof **edges);
        if (!grown)
            return false;
        *edges = grown;
    }
    (*edges)[(*count)++] = (struct graph_edge){node, data ? *data : no_data};
    return true;
}

static struct graph_edge *find(struct graph_edge *edges, size_t count,
                               const struct graph_node *node)
{
    for (size_t i = 0; i < count; i++)
        if (edges[i].node == node)
            return &edges[i];
    return NULL;
}

static void drop(struct graph_edge *edges, size_t *count, const struct graph_node *node)
{
    struct graph_edge *edge = find(edges, *count, node);
    if (!edge)
        return;
    memmove(edge, edge + 1, (size_t)(edges + *count - edge - 1) * sizeof *edge);
    --*count;
}

bool graph_link(struct graph_node *from, struct graph_node *to, const CUgraphEdgeData *data)
{
    if (!push(&to->links.dependencies, &to->links.dependency_count, from, data))
        return false;
    if (push(&from->links.dependents, &from->links.dependent_count, to, data))
        return true;
    to->links.dependency_count--;
    return false;
}

static void unlink_nodes(struct graph_node *from, struct graph_node *to)
{
    drop(to->links.dependencies, &to->links.dependency_count, from);
    drop(from->links.dependents, &from->links.dependent_count, to);
}

void graph_unlink_all(struct graph_node *node)
{
    while (node->links.dependency_count)
        unlink_nodes(node->links.dependencies[0].node, node);
    while (node->links.dependent_count)
        unlink_nodes(node, node->links.dependents[0].node);
}

struct graph_node *graph_sort(struct CUgraph_st *graph, struct graph_node **order)
{
    size_t sorted = 0;
    for (struct graph_node *node = graph->first; node; node = node->links.next) {
        node->links.remaining = node->links.dependency_count;
        if (!node->links.remaining)
            order[sorted++] = node;
    }
    for (size_t i = 0; i < sorted; i++)
        for (size_t j = 0; j < order[i]->links.dependent_count; j++) {
            struct graph_node *next = order[i]->links.dependents[j].node;
            if (--next->links.remaining == 0)
                order[sorted++] = next;
        }
    if (sorted == graph->count)
        return NULL;
    struct graph_node *left = graph->first;
    while (!left->links.remaining)
        left = left->links.next;
    return left;
}

/* ---- entry points ---------------------------------------------------------------------------- */

static CUresult list_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                           size_t *count)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || !count || !from != !to || (data && !from));
    size_t found = 0;
    for (const struct graph_node *node = graph->first; node; node = node->links.next)
        for (size_t i = 0; i < node->links.dependency_count; i++) {
            const struct graph_edge *edge = &node->links.dependencies[i];
            if (from && found == *count)
                return CUDA_SUCCESS;
            REFUSE_IF(from && !data && !is_plain(&edge->data), CUDA_ERROR_LOSSY_QUERY);
            if (from) {
                from[found] = (CUgraphNode)edge->node;
                to[found] = (CUgraphNode)node;
            }
            if (data)
                data[found] = edge->data;
            found++;
        }
    for (size_t i = found; from && i < *count; i++)
        from[i] = to[i] = NULL;
    *count = found;
    return CUDA_SUCCESS;
}

SAME_AS(cuGraphGetEdges_v2, list_edges);

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return list_edges(graph, from, to, NULL, count);
}

static CUresult list_neighbours(CUgraphNode handle, bool dependents, CUgraphNode *nodes,
                                CUgraphEdgeData *data, size_t *count)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of(handle);
    INVALID_IF(!node || !count || (data && !nodes));
    const struct graph_edge *edges = dependents ? node->links.dependents : node->links.dependencies;
    size_t there = dependents ? node->links.dependent_count : node->links.dependency_count;
    if (!nodes) {
        *count = there;
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < *count; i++) {
        REFUSE_IF(i < there && !data && !is_plain(&edges[i].data), CUDA_ERROR_LOSSY_QUERY);
        nodes[i] = i < there ? (CUgraphNode)edges[i].node : NULL;
        if (data && i < there)
            data[i] = edges[i].data;
    }
    if (*count > there)
        *count = there;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                       size_t *count)
{
    return list_neighbours(node, false, nodes, data, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return list_neighbours(node, false, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                         CUgraphEdgeData *data, size_t *count)
{
    return list_neighbours(node, true, nodes, data, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return list_neighbours(node, true, nodes, NULL, count);
}

static CUresult check_ends(CUgraph graph, CUgraphNode from, CUgraphNode to)
{
    struct graph_node *source = graph_node_of(from), *target = graph_node_of(to);
    return source && target && source->links.graph == graph && target->links.graph == graph
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static struct graph_edge *find_edge(CUgraphNode from, CUgraphNode to)
{
    struct graph_node *target = (struct graph_node *)to;
    return find(target->links.dependencies, target->links.dependency_count,
                (struct graph_node *)from);
}

/* A cycle is found when the graph is instantiated. */
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || (count && (!from || !to)));
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_ends(graph, from[i], to[i]);
        if (result == CUDA_SUCCESS && data)
            result = graph_check_edge((struct graph_node *)from[i], (struct graph_node *)to[i],
                                      &data[i]);
        if (result != CUDA_SUCCESS)
            return result;
    }
    for (size_t i = 0; i < count; i++) {
        CUresult result = find_edge(from[i], to[i]) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        if (result == CUDA_SUCCESS &&
            !graph_link((struct graph_node *)from[i], (struct graph_node *)to[i],
                        data ? &data[i] : NULL))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            continue;
        while (i--) /* all or none */
            unlink_nodes((struct graph_node *)from[i], (struct graph_node *)to[i]);
        return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t count)
{
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || (count && (!from || !to)) ||
               graph_has_memory_nodes(graph));
    for (size_t i = 0; i < count; i++) {
        CHECK(check_ends(graph, from[i], to[i]));
        const struct graph_edge *edge = find_edge(from[i], to[i]);
        INVALID_IF(!edge || memcmp(&edge->data, data ? &data[i] : &no_data, sizeof no_data) != 0);
    }
    for (size_t i = 0; i < count; i++)
        unlink_nodes((struct graph_node *)from[i], (struct graph_node *)to[i]);
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count)
{
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}
