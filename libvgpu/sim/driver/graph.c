/* Graphs as lists of nodes: making, copying, taking apart, and what can be asked of them. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "graph_exec.h"
#include "graph_memory.h"

static unsigned long long next_id(void)
{
    return __atomic_add_fetch(&driver.next_id, 1, __ATOMIC_RELAXED);
}

struct CUgraph_st *graph_new(void)
{
    struct CUgraph_st *graph = handle_new(MAGIC_GRAPH, sizeof *graph);
    if (graph) {
        graph->id = next_id();
        graph->last = &graph->first;
    }
    return graph;
}

static void delete_node(struct graph_node *node)
{
    graph_work_release(node);
    node->links.magic = 0;
    free(node->links.dependencies);
    free(node->links.dependents);
    free(node);
}

void graph_delete(struct CUgraph_st *graph)
{
    if (graph->only_exec) /* goes on by itself */
        graph->only_exec->source = NULL;
    while (graph->first) {
        struct graph_node *node = graph->first;
        graph->first = node->links.next;
        delete_node(node);
    }
    graph_delete_conditions(graph);
    user_references_drop(&graph->objects);
    handle_bury(graph);
}

bool graph_is_graph(const struct CUgraph_st *graph)
{
    return handle_is(MAGIC_GRAPH, graph);
}

struct graph_node *graph_node_of(CUgraphNode handle)
{
    struct graph_node *node = (struct graph_node *)handle;
    return node && node->links.magic == MAGIC_NODE ? node : NULL;
}

struct graph_node *graph_node_of_type(CUgraphNode handle, CUgraphNodeType type)
{
    struct graph_node *node = graph_node_of(handle);
    return node && node->type == type ? node : NULL;
}

bool graph_contains(const struct CUgraph_st *graph, CUgraphNodeType type)
{
    for (const struct graph_node *node = graph->first; node; node = node->links.next) {
        if (node->type == type)
            return true;
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH && graph_contains(node->params.child, type))
            return true;
    }
    return false;
}

bool graph_has_memory_nodes(const struct CUgraph_st *graph)
{
    return graph_contains(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC) ||
           graph_contains(graph, CU_GRAPH_NODE_TYPE_MEM_FREE);
}

/* Graphs inside a node know whose they are. */
static void own_inner_graphs(struct graph_node *node)
{
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
        node->params.child->owner = node;
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        for (unsigned int i = 0; i < node->params.conditional.size; i++)
            node->params.conditional.phGraph_out[i]->owner = node;
}

struct graph_node *graph_append(struct CUgraph_st *graph, const struct graph_node *work)
{
    struct graph_node *node = malloc(sizeof *node);
    if (!node)
        return NULL;
    *node = *work;
    node->links = (struct graph_links){.magic = MAGIC_NODE, .id = next_id(), .graph = graph};
    if (graph->first)
        node->links.previous =
            (struct graph_node *)((char *)graph->last - offsetof(struct graph_node, links.next));
    *graph->last = node;
    graph->last = &node->links.next;
    graph->count++;
    own_inner_graphs(node);
    return node;
}

static void remove_node(struct graph_node *node)
{
    struct CUgraph_st *graph = node->links.graph;
    graph_unlink_all(node);
    if (node->links.previous)
        node->links.previous->links.next = node->links.next;
    else
        graph->first = node->links.next;
    if (node->links.next)
        node->links.next->links.previous = node->links.previous;
    else
        graph->last = node->links.previous ? &node->links.previous->links.next : &graph->first;
    graph->count--;
    delete_node(node);
}

/* What may stand in a graph that is inside another one. */
static bool fits(const struct CUgraph_st *graph, CUgraphNodeType type)
{
    if (graph->is_body)
        return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_EMPTY ||
               type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_MEMSET ||
               type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    return !graph->owner ||
           (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && type != CU_GRAPH_NODE_TYPE_MEM_FREE);
}

static CUresult check_dependencies(struct CUgraph_st *graph, const CUgraphNode *dependencies,
                                   const CUgraphEdgeData *data, size_t count,
                                   const struct graph_node *work)
{
    INVALID_IF(count && !dependencies);
    uint64_t mark = ++graph->mark;
    for (size_t i = 0; i < count; i++) {
        struct graph_node *node = graph_node_of(dependencies[i]);
        INVALID_IF(!node || node->links.graph != graph ||
                   node->links.mark == mark); /* not of this graph, or twice */
        node->links.mark = mark;
        CHECK(data ? graph_check_edge(node, work, &data[i]) : CUDA_SUCCESS);
    }
    return CUDA_SUCCESS;
}

/* Gives up a work that was to become a node. */
static CUresult refuse(const struct CUgraph_st *graph, struct graph_node *work, CUresult why)
{
    if (work->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        graph_memory_unclaim(work->allocation, graph->id);
    graph_work_release(work);
    return why;
}

CUresult graph_attach(CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                      size_t count, struct graph_node *work, CUgraphNode *node)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (node && graph_is_graph(graph) && fits(graph, work->type))
        result = check_dependencies(graph, dependencies, data, count, work);
    if (result != CUDA_SUCCESS)
        return refuse(graph, work, result);
    struct graph_node *added = graph_append(graph, work);
    if (!added)
        return refuse(graph, work, CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < count; i++)
        if (!graph_link((struct graph_node *)dependencies[i], added, data ? &data[i] : NULL)) {
            remove_node(added);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    *node = (CUgraphNode)added;
    return CUDA_SUCCESS;
}

CUresult graph_add(CUgraph graph, const CUgraphNode *dependencies, size_t count, CUresult described,
                   struct graph_node *work, CUgraphNode *node)
{
    return described == CUDA_SUCCESS ? graph_attach(graph, dependencies, NULL, count, work, node)
                                     : described;
}

CUresult graph_tell(CUgraphNode handle, CUgraphNodeType type, void *params, size_t bytes)
{
    DRIVER_CHECK();
    const struct graph_node *node = graph_node_of_type(handle, type);
    INVALID_IF(!node || !params);
    memcpy(params, &node->params, bytes);
    return CUDA_SUCCESS;
}

static struct graph_node *find_copy(const struct CUgraph_st *copy, unsigned long long original_id)
{
    struct graph_node *node = copy->first;
    while (node && node->links.original_id != original_id)
        node = node->links.next;
    return node;
}

/* The edges of the copies, in the order of the originals. The nodes stand in the same order, so
 * that `pair` can lead from an original to its copy. */
static bool copy_edges(struct CUgraph_st *copy, const struct CUgraph_st *graph)
{
    struct graph_node *twin = copy->first;
    for (struct graph_node *node = graph->first; node; node = node->links.next) {
        node->links.pair = twin;
        twin = twin->links.next;
    }
    for (const struct graph_node *node = graph->first; node; node = node->links.next)
        for (size_t i = 0; i < node->links.dependency_count; i++) {
            const struct graph_edge *edge = &node->links.dependencies[i];
            if (!graph_link(edge->node->links.pair, node->links.pair, &edge->data))
                return false;
        }
    return true;
}

struct CUgraph_st *graph_copy(const struct CUgraph_st *graph)
{
    struct CUgraph_st *copy = graph_new();
    if (!copy)
        return NULL;
    copy->original_id = graph->id;
    copy->is_body = graph->is_body;
    bool good = user_references_copy(&copy->objects, graph->objects);
    for (const struct graph_node *node = graph->first; good && node; node = node->links.next) {
        struct graph_node work;
        good = graph_work_copy(&work, node);
        struct graph_node *added = good ? graph_append(copy, &work) : NULL;
        if (added)
            added->links.original_id = node->links.id;
        else if (good)
            graph_work_release(&work);
        good = added != NULL;
    }
    if (good && copy_edges(copy, graph))
        return copy;
    graph_delete(copy);
    return NULL;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    DRIVER_CHECK();
    INVALID_IF(!graph || flags);
    *graph = graph_new();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || graph->owner || graph->capturing);
    graph_delete(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
    DRIVER_CHECK();
    INVALID_IF(!clone || !graph_is_graph(graph) || graph_has_memory_nodes(graph) ||
               graph_contains(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL));
    *clone = graph_copy(graph);
    return *clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode handle, CUgraph clone)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of(handle);
    INVALID_IF(!found || !node || !graph_is_graph(clone) ||
               clone->original_id != node->links.graph->id);
    struct graph_node *copy = find_copy(clone, node->links.id);
    INVALID_IF(!copy);
    *found = (CUgraphNode)copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of(handle);
    INVALID_IF(!node || node->links.graph->capturing || graph_has_memory_nodes(node->links.graph));
    remove_node(node);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of(handle);
    INVALID_IF(!node || !type);
    *type = node->type;
    return CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots_only)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || !count);
    size_t found = 0;
    for (struct graph_node *node = graph->first; node; node = node->links.next) {
        if (roots_only && node->links.dependency_count)
            continue;
        if (nodes && found == *count)
            break;
        if (nodes)
            nodes[found] = (CUgraphNode)node;
        found++;
    }
    for (size_t i = found; nodes && i < *count; i++)
        nodes[i] = NULL;
    *count = found;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, nodes, count, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, nodes, count, true);
}
