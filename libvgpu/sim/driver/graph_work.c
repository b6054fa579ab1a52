/* What a node does: owning, copying and exchanging it. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "graph_memory.h"

void graph_work_release(struct graph_node *work)
{
    if (work->type == CU_GRAPH_NODE_TYPE_GRAPH)
        graph_delete(work->params.child);
    if (work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        for (unsigned int i = 0; i < work->params.conditional.size; i++)
            graph_delete(work->params.conditional.phGraph_out[i]);
    if (work->allocation)
        graph_memory_drop(work->allocation);
    free(work->owned);
    free(work->attributes);
}

/* Copies the block that the parameters point to; pointers at its beginning that lead into it lead
 * into the copy. */
static void *copy_owned(const struct graph_node *work)
{
    char *block = malloc(work->owned_bytes);
    if (!block)
        return NULL;
    memcpy(block, work->owned, work->owned_bytes);
    char **pointers = (char **)block, *old = work->owned;
    for (size_t i = 0; i < work->owned_pointers; i++)
        if (pointers[i] >= old && pointers[i] < old + work->owned_bytes)
            pointers[i] = block + (pointers[i] - old);
    return block;
}

static void point_params(struct graph_node *work)
{
    if (work->type == CU_GRAPH_NODE_TYPE_KERNEL && work->params.kernel.kernelParams)
        work->params.kernel.kernelParams = work->owned;
    else if (work->type == CU_GRAPH_NODE_TYPE_KERNEL)
        work->params.kernel.extra = work->owned;
    else if (work->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
        work->params.batch.paramArray = work->owned;
    else if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        work->params.allocation.accessDescs = work->owned;
}

bool graph_work_copy(struct graph_node *copy, const struct graph_node *work)
{
    *copy = *work;
    copy->owned = NULL;
    copy->attributes = NULL;
    copy->links = (struct graph_links){0};
    if (copy->allocation)
        graph_memory_hold(copy->allocation);
    bool good = true;
    if (work->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        copy->params.child = graph_copy(work->params.child);
        good = copy->params.child != NULL;
        if (!good)
            copy->type = CU_GRAPH_NODE_TYPE_EMPTY; /* owns no graph */
    }
    if (work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        good = graph_copy_bodies(copy, work);
    } else if (good && work->owned) {
        copy->owned = copy_owned(work);
        good = copy->owned != NULL;
        point_params(copy);
    }
    if (good && work->attributes) {
        copy->attributes = malloc(sizeof *copy->attributes);
        good = copy->attributes != NULL;
        if (good)
            *copy->attributes = *work->attributes;
    }
    if (!good)
        graph_work_release(copy);
    return good;
}

void graph_work_replace(struct graph_node *node, struct graph_node *work)
{
    struct graph_links links = node->links;
    bool disabled = node->disabled;
    graph_work_release(node);
    *node = *work;
    node->links = links;
    node->disabled = disabled;
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
        node->params.child->owner = node;
}

CUresult graph_work_complete(struct graph_node *work, struct CUctx_st *context)
{
    work->context = context;
    if (work->type == CU_GRAPH_NODE_TYPE_KERNEL && work->function) {
        REFUSE_IF(!graph_keep_arguments(work, work->launch), CUDA_ERROR_OUT_OF_MEMORY);
        work->launch = NULL;
    } else if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY && work->bytes) {
        graph_complete_copy(work);
    } else if (work->type == CU_GRAPH_NODE_TYPE_MEMSET && work->bytes) {
        graph_complete_fill(work);
    }
    return CUDA_SUCCESS;
}
