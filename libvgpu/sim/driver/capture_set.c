/* Sets of nodes that the next node of a capturing stream will depend on. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"

void capture_set_clear(struct capture_set *set)
{
    free(set->nodes);
    free(set->data);
    *set = (struct capture_set){0};
}

static bool holds(const struct capture_set *set, CUgraphNode node)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->nodes[i] == node)
            return true;
    return false;
}

bool capture_set_add(struct capture_set *set, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                     size_t count)
{
    CUgraphNode *more_nodes = realloc(set->nodes, (set->count + count + 1) * sizeof *more_nodes);
    if (more_nodes)
        set->nodes = more_nodes;
    CUgraphEdgeData *more_data = realloc(set->data, (set->count + count + 1) * sizeof *more_data);
    if (more_data)
        set->data = more_data;
    if (!more_nodes || !more_data)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (holds(set, nodes[i]))
            continue;
        set->nodes[set->count] = nodes[i];
        set->data[set->count++] = data ? data[i] : (CUgraphEdgeData){0};
    }
    return true;
}

/* Marks a node and all that comes before it. */
static void mark_back(struct graph_node **stack, struct graph_node *node, uint64_t mark)
{
    size_t depth = 0;
    if (node->links.mark == mark)
        return;
    node->links.mark = mark;
    stack[depth++] = node;
    while (depth) {
        node = stack[--depth];
        for (size_t i = 0; i < node->links.dependency_count; i++) {
            struct graph_node *before = node->links.dependencies[i].node;
            if (before->links.mark == mark)
                continue;
            before->links.mark = mark;
            stack[depth++] = before;
        }
    }
}

bool capture_set_reaches(struct CUgraph_st *graph, const struct capture_set *ends,
                         const struct capture_set *set)
{
    struct graph_node **stack = malloc((graph->count + 1) * sizeof(struct graph_node *));
    if (!stack)
        return false;
    uint64_t mark = ++graph->mark;
    for (size_t i = 0; i < ends->count; i++)
        mark_back(stack, (struct graph_node *)ends->nodes[i], mark);
    free(stack);
    for (size_t i = 0; i < set->count; i++)
        if (((struct graph_node *)set->nodes[i])->links.mark != mark)
            return false;
    return true;
}
