/* Conditional nodes: IF, WHILE and SWITCH over bodies, which are graphs of their own. Kernels
 * compute nothing and so set no condition: what the handle is worth at the beginning of a launch
 * (its default value if that was asked for, else 0) decides, and the body of a WHILE whose
 * condition holds runs once. */
#include <stdlib.h>

#include "graph.h"

void graph_delete_conditions(struct CUgraph_st *graph)
{
    while (graph->conditions) {
        struct graph_condition *condition = graph->conditions;
        graph->conditions = condition->next;
        free(condition);
    }
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph,
                                        CUcontext handle_context, unsigned int default_value,
                                        unsigned int flags)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(handle_context, &context));
    INVALID_IF(!handle || !graph_is_graph(graph) ||
               flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT);
    struct graph_condition *condition = malloc(sizeof *condition);
    REFUSE_IF(!condition, CUDA_ERROR_OUT_OF_MEMORY);
    *condition =
        (struct graph_condition){.id = __atomic_add_fetch(&driver.next_id, 1, __ATOMIC_RELAXED),
                                 .default_value = default_value,
                                 .flags = flags,
                                 .next = graph->conditions};
    graph->conditions = condition;
    *handle = condition->id;
    return CUDA_SUCCESS;
}

/* The handle of a node is of the node's graph or of one around it. */
static struct graph_condition *find_condition(const struct CUgraph_st *graph, uint64_t id)
{
    while (graph) {
        for (struct graph_condition *each = graph->conditions; each; each = each->next)
            if (each->id == id)
                return each;
        graph = graph->owner ? graph->owner->links.graph : NULL;
    }
    return NULL;
}

static bool is_size(CUgraphConditionalNodeType type, unsigned int size)
{
    return (type == CU_GRAPH_COND_TYPE_IF && (size == 1 || size == 2)) ||
           (type == CU_GRAPH_COND_TYPE_WHILE && size == 1) ||
           (type == CU_GRAPH_COND_TYPE_SWITCH && size > 0);
}

/* Fills `bodies` with new or copied graphs, all or none. */
static bool make_bodies(struct CUgraph_st **bodies, struct CUgraph_st *const *originals,
                        unsigned int size)
{
    for (unsigned int i = 0; i < size; i++) {
        bodies[i] = originals ? graph_copy(originals[i]) : graph_new();
        if (bodies[i]) {
            bodies[i]->is_body = true;
            continue;
        }
        while (i--)
            graph_delete(bodies[i]);
        return false;
    }
    return true;
}

static bool own_bodies(struct graph_node *work, struct CUgraph_st *const *originals)
{
    CUDA_CONDITIONAL_NODE_PARAMS *params = &work->params.conditional;
    work->owned_bytes = params->size * sizeof(struct CUgraph_st *);
    work->owned = malloc(work->owned_bytes);
    params->phGraph_out = work->owned;
    if (work->owned && make_bodies(work->owned, originals, params->size))
        return true;
    params->size = 0;
    free(work->owned);
    work->owned = NULL;
    return false;
}

bool graph_copy_bodies(struct graph_node *copy, const struct graph_node *node)
{
    return own_bodies(copy, node->params.conditional.phGraph_out);
}

CUresult graph_describe_conditional(CUDA_CONDITIONAL_NODE_PARAMS *params, CUgraph graph,
                                    struct graph_node *work)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(params->ctx, &context));
    struct graph_condition *condition =
        graph_is_graph(graph) ? find_condition(graph, params->handle) : NULL;
    INVALID_IF(!condition || condition->used || !is_size(params->type, params->size));
    *work = (struct graph_node){
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .context = context,
        .condition = condition->flags & CU_GRAPH_COND_ASSIGN_DEFAULT ? condition->default_value : 0,
        .params.conditional = *params};
    REFUSE_IF(!own_bodies(work, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    params->phGraph_out = work->owned;
    return CUDA_SUCCESS;
}

void graph_use_condition(struct CUgraph_st *graph, CUgraphConditionalHandle handle)
{
    find_condition(graph, handle)->used = true;
}

struct CUgraph_st *graph_chosen_body(const struct graph_node *node)
{
    const CUDA_CONDITIONAL_NODE_PARAMS *params = &node->params.conditional;
    unsigned int chosen = node->condition;
    if (params->type != CU_GRAPH_COND_TYPE_SWITCH)
        chosen = node->condition ? 0 : 1; /* ELSE, where there is one */
    return chosen < params->size ? params->phGraph_out[chosen] : NULL;
}
