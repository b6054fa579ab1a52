#include "memory/graphs/graph_walk.h"

#include <stdbool.h>
#include <sys/mman.h>

#include "compute/cap/collective.h"
#include "driver/real.h"
#include "memory/ledger/charge.h"
#include "memory/local/local_memory.h"

/* An edge that is not known only means that less shares memory. */
struct edges {
    size_t count;
    CUgraphNode *from, *to;
    CUgraphEdgeData *data;
};

/* From a number that is not 0 to a node. */
struct table {
    size_t mask;
    uint64_t *keys;
    uint32_t *nodes;
};

static void *map(size_t bytes)
{
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped != MAP_FAILED ? mapped : NULL;
}

/* The next part of a mapping. */
static void *part(char **at, size_t bytes)
{
    void *start = *at;
    *at += (bytes + 15) & ~(size_t)15;
    return start;
}

/* ---- tables ---- */

static uint32_t *entry_of(const struct table *table, uint64_t key)
{
    size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & table->mask;
    while (table->keys[at] != 0 && table->keys[at] != key)
        at = (at + 1) & table->mask;
    if (table->keys[at] == 0) {
        table->keys[at] = key;
        table->nodes[at] = GRAPH_NO_NODE;
    }
    return &table->nodes[at];
}

static size_t slots_for(size_t keys)
{
    size_t slots = 16;
    while (slots < 2 * keys)
        slots *= 2;
    return slots;
}

/* ---- what the driver tells ---- */

static CUresult ask_node(struct graph_walk_node *node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUresult result = CUDA_SUCCESS;
    node->freed_by = GRAPH_NO_NODE;
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && real.cuGraphMemAllocNodeGetParams != NULL) {
        result = real.cuGraphMemAllocNodeGetParams(node->handle, &params);
        if (result == CUDA_SUCCESS) {
            node->ordinal = params.poolProps.location.id;
            node->bytes = charge_rounded(params.bytesize);
            node->address = params.dptr;
        }
    } else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
               real.cuGraphMemFreeNodeGetParams != NULL) {
        result = real.cuGraphMemFreeNodeGetParams(node->handle, &node->address);
    }
    return result;
}

/* Of kernels of libraries the first version tells no function. */
static void look_at_kernel(struct graph_walk *walk, CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    CUDA_KERNEL_NODE_PARAMS_v1 old = {0};
    if (real.cuGraphKernelNodeGetParams_v2 != NULL)
        real.cuGraphKernelNodeGetParams_v2(node, &params);
    else if (real.cuGraphKernelNodeGetParams != NULL &&
             real.cuGraphKernelNodeGetParams(node, &old) == CUDA_SUCCESS)
        params.func = old.func;
    uint64_t bytes = local_memory_of(params.func, params.kern);
    if (bytes > walk->local_bytes_a_thread)
        walk->local_bytes_a_thread = bytes;
    walk->has_collective |= collective_is_node(params.func, params.kern);
}

/* Without the data of edges the driver refuses to tell of those that have some. */
static CUresult ask_edges(CUgraph graph, struct edges *edges)
{
    if (real.cuGraphGetEdges_v2 != NULL)
        return real.cuGraphGetEdges_v2(graph, edges->from, edges->to, edges->data, &edges->count);
    if (real.cuGraphGetEdges != NULL)
        return real.cuGraphGetEdges(graph, edges->from, edges->to, &edges->count);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult ask_nodes(struct graph_walk *walk, const CUgraphNode *handles, size_t count,
                          bool *any)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUgraphNodeType type;
        result = real.cuGraphNodeGetType(handles[i], &type);
        if (result != CUDA_SUCCESS)
            break;
        if (walk->nodes != NULL) {
            walk->nodes[i].handle = handles[i];
            walk->nodes[i].type = type;
            result = ask_node(&walk->nodes[i]);
        } else if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
            look_at_kernel(walk, handles[i]);
        }
        *any |= type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_GRAPH;
    }
    return result;
}

/* ---- the order ---- */

/* Sorts the edges by where they begin. */
static void sort_edges(struct graph_walk *walk, const struct edges *edges,
                       const struct table *of_handles, uint32_t *from, uint32_t *to)
{
    for (size_t i = 0; i < edges->count; i++) {
        from[i] = *entry_of(of_handles, (uintptr_t)edges->from[i]);
        to[i] = *entry_of(of_handles, (uintptr_t)edges->to[i]);
        if (from[i] == GRAPH_NO_NODE || to[i] == GRAPH_NO_NODE)
            from[i] = GRAPH_NO_NODE;
        else
            walk->nodes[from[i]].leads_to++;
    }
    uint32_t first = 0;
    for (uint32_t i = 0; i < walk->count; i++) {
        walk->nodes[i].first = first;
        first += walk->nodes[i].leads_to;
        walk->nodes[i].leads_to = 0;
    }
    for (size_t i = 0; i < edges->count; i++) {
        if (from[i] == GRAPH_NO_NODE)
            continue;
        struct graph_walk_node *node = &walk->nodes[from[i]];
        walk->targets[node->first + node->leads_to++] = to[i];
        walk->nodes[to[i]].waits_for++;
    }
}

/* Which free ends which allocation: an address may be given again and again, but only behind the
 * free of the one before. */
static void match(struct graph_walk *walk, uint32_t at, const struct table *of_addresses)
{
    struct graph_walk_node *node = &walk->nodes[at];
    if (node->address == 0)
        return;
    uint32_t *live = entry_of(of_addresses, node->address);
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        *live = at;
    } else if (*live != GRAPH_NO_NODE) {
        walk->nodes[*live].freed_by = at;
        *live = GRAPH_NO_NODE;
    }
}

static void sort_nodes(struct graph_walk *walk, const struct table *of_addresses)
{
    uint32_t sorted = 0;
    for (uint32_t i = 0; i < walk->count; i++)
        if (walk->nodes[i].waits_for == 0)
            walk->order[sorted++] = i;
    for (uint32_t i = 0; i < sorted; i++) {
        const struct graph_walk_node *node = &walk->nodes[walk->order[i]];
        match(walk, walk->order[i], of_addresses);
        for (uint32_t edge = 0; edge < node->leads_to; edge++) {
            uint32_t target = walk->targets[node->first + edge];
            if (--walk->nodes[target].waits_for == 0)
                walk->order[sorted++] = target;
        }
    }
    walk->count = sorted; /* all: there are no cycles */
}

/* ---- from begin to end ---- */

static CUresult begin(struct graph_walk *walk, CUgraph graph, const CUgraphNode *handles)
{
    struct edges edges = {0};
    if (ask_edges(graph, &edges) != CUDA_SUCCESS)
        edges.count = 0; /* then nothing is known to be before anything else */
    size_t count = walk->count, slots = slots_for(count);
    size_t edge_bytes = 2 * sizeof(CUgraphNode) + sizeof(CUgraphEdgeData) + 3 * sizeof(uint32_t);
    size_t node_bytes = sizeof *walk->nodes + sizeof *walk->labels + sizeof *walk->order;
    walk->mapped_bytes = count * node_bytes + edges.count * edge_bytes +
                         2 * slots * (sizeof(uint64_t) + sizeof(uint32_t)) + 16 * 16;
    char *at = walk->mapping = map(walk->mapped_bytes);
    if (at == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    walk->nodes = part(&at, count * sizeof *walk->nodes);
    walk->labels = part(&at, count * sizeof *walk->labels);
    walk->order = part(&at, count * sizeof *walk->order);
    walk->targets = part(&at, edges.count * sizeof *walk->targets);
    uint32_t *from = part(&at, edges.count * sizeof *from);
    uint32_t *to = part(&at, edges.count * sizeof *to);
    edges.from = part(&at, edges.count * sizeof *edges.from);
    edges.to = part(&at, edges.count * sizeof *edges.to);
    edges.data = part(&at, edges.count * sizeof *edges.data);
    struct table tables[2];
    for (int i = 0; i < 2; i++) {
        tables[i].mask = slots - 1;
        tables[i].keys = part(&at, slots * sizeof *tables[i].keys);
        tables[i].nodes = part(&at, slots * sizeof *tables[i].nodes);
    }
    bool any = false;
    CUresult result = ask_nodes(walk, handles, count, &any);
    if (edges.count > 0 && ask_edges(graph, &edges) != CUDA_SUCCESS)
        edges.count = 0;
    if (result != CUDA_SUCCESS)
        return result;
    for (uint32_t i = 0; i < walk->count; i++)
        *entry_of(&tables[0], (uintptr_t)handles[i]) = i;
    sort_edges(walk, &edges, &tables[0], from, to);
    sort_nodes(walk, &tables[1]);
    return CUDA_SUCCESS;
}

CUresult graph_walk_begin(struct graph_walk *walk, CUgraph graph)
{
    size_t count = 0;
    *walk = (struct graph_walk){0};
    CUresult result = real.cuGraphGetNodes(graph, NULL, &count);
    if (result != CUDA_SUCCESS || count == 0)
        return result;
    if (count >= GRAPH_NO_NODE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t bytes = count * sizeof(CUgraphNode);
    CUgraphNode *handles = map(bytes);
    if (handles == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool any = false;
    result = real.cuGraphGetNodes(graph, handles, &count);
    if (result == CUDA_SUCCESS)
        result = ask_nodes(walk, handles, count, &any);
    if (result == CUDA_SUCCESS && any) {
        walk->count = (uint32_t)count;
        result = begin(walk, graph, handles);
        if (result != CUDA_SUCCESS)
            graph_walk_end(walk);
    }
    munmap(handles, bytes);
    return result;
}

void graph_walk_end(struct graph_walk *walk)
{
    if (walk->mapping != NULL)
        munmap(walk->mapping, walk->mapped_bytes);
    walk->mapping = NULL;
}

void graph_walk_pass_on(struct graph_walk *walk, uint32_t node)
{
    const struct graph_walk_node *from = &walk->nodes[node];
    for (uint32_t edge = 0; edge < from->leads_to; edge++) {
        uint32_t *label = walk->labels[walk->targets[from->first + edge]];
        for (int row = 0; row < GRAPH_ROWS; row++)
            if (label[row] < walk->labels[node][row])
                label[row] = walk->labels[node][row];
    }
}
