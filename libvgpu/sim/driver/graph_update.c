/*
 * Updates of executable graphs. The nodes of both graphs are paired as documented: exit nodes in
 * the order of their making, then backwards over the dependencies in the order of the edges. When
 * every pair may change, the executable graph's nodes get the works of the others; until then
 * nothing is touched.
 */
#include "graph.h"

#include <stdlib.h>

/* ---- one node -------------------------------------------------------------------------------- */

static struct CUctx_st *owner_of(uint64_t address)
{
    struct allocation found;
    return memory_find(address, 1, &found) ? found.context : NULL;
}

static uint64_t source_of(const CUDA_MEMCPY3D *copy)
{
    return copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)copy->srcHost : copy->srcDevice;
}

static uint64_t target_of(const CUDA_MEMCPY3D *copy)
{
    return copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)copy->dstHost : copy->dstDevice;
}

static bool may_copy(const CUDA_MEMCPY3D *before, const CUDA_MEMCPY3D *after)
{
    return before->srcMemoryType == after->srcMemoryType &&
           before->dstMemoryType == after->dstMemoryType &&
           owner_of(source_of(before)) == owner_of(source_of(after)) &&
           owner_of(target_of(before)) == owner_of(target_of(after));
}

/* Of two dimensions only address and value may change, of one anything but the height. */
static bool may_fill(const CUDA_MEMSET_NODE_PARAMS *before, const CUDA_MEMSET_NODE_PARAMS *after)
{
    if (owner_of(before->dst) != owner_of(after->dst) || before->height != after->height)
        return false;
    return before->height == 1 ||
           (before->width == after->width && before->elementSize == after->elementSize &&
            before->pitch == after->pitch);
}

static bool is_wait(CUstreamBatchMemOpType operation)
{
    return operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
           operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

/* Addresses, values and the comparison of a wait may change. */
static bool may_operate(const CUDA_BATCH_MEM_OP_NODE_PARAMS *before,
                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *after)
{
    if (before->count != after->count)
        return false;
    for (unsigned int i = 0; i < before->count; i++) {
        const CUstreamBatchMemOpParams *one = &before->paramArray[i],
                                       *other = &after->paramArray[i];
        unsigned int changed = one->waitValue.flags ^ other->waitValue.flags;
        if (one->operation != other->operation ||
            (is_wait(one->operation) && changed & CU_STREAM_WAIT_VALUE_FLUSH))
            return false;
    }
    return true;
}

static CUlaunchAttributeValue attribute(const struct graph_node *node, int number)
{
    return node->attributes ? node->attributes->values[number]
                            : (CUlaunchAttributeValue){.pad = {0}};
}

static CUgraphExecUpdateResult check_kernel(const struct graph_node *node,
                                            const struct graph_node *work, uint64_t exec_flags)
{
    if (node->function && work->function && node->context != work->context)
        return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    if (!attribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative !=
        !attribute(work, CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative)
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    if (exec_flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY &&
        attribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY).priority !=
            attribute(work, CU_LAUNCH_ATTRIBUTE_PRIORITY).priority)
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUgraphExecUpdateResult graph_check_change(const struct graph_node *node,
                                           const struct graph_node *work, uint64_t exec_flags)
{
    bool good = true;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return check_kernel(node, work, exec_flags);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        good = may_copy(&node->params.copy, &work->params.copy);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        good = may_fill(&node->params.fill, &work->params.fill);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        good = may_operate(&node->params.batch, &work->params.batch);
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        good = node->params.conditional.type == work->params.conditional.type &&
               node->params.conditional.size == work->params.conditional.size;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        /* the address belongs to the node that the graph was instantiated with */
        return node->links.original_id == work->links.id ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                         : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
        break;
    }
    return good ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

/* ---- pairing --------------------------------------------------------------------------------- */

struct pairing {
    struct graph_node **queue; /* of nodes of the executable graph that have a pair */
    size_t count;
    CUgraphExecUpdateResultInfo *info;
};

static bool fail(struct pairing *pairing, CUgraphExecUpdateResult why, struct graph_node *node,
                 struct graph_node *from)
{
    *pairing->info = (CUgraphExecUpdateResultInfo){why, (CUgraphNode)node, (CUgraphNode)from};
    return false;
}

static bool pair(struct pairing *pairing, struct graph_node *node, struct graph_node *other)
{
    if (node->type != other->type)
        return fail(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, other, NULL);
    node->links.pair = other;
    other->links.pair = node;
    pairing->queue[pairing->count++] = node;
    return true;
}

static struct graph_node *next_exit(struct graph_node *node)
{
    while (node && node->links.dependent_count)
        node = node->links.next;
    return node;
}

/* The numbers of exits are compared before their types. */
static bool pair_exits(struct pairing *pairing, struct CUgraph_st *target,
                       struct CUgraph_st *source)
{
    struct graph_node *node = next_exit(target->first), *other = next_exit(source->first);
    while (node && other) {
        node = next_exit(node->links.next);
        other = next_exit(other->links.next);
    }
    if (node || other)
        return fail(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, other, NULL);
    node = next_exit(target->first);
    other = next_exit(source->first);
    bool good = true;
    while (good && node) {
        good = pair(pairing, node, other);
        node = next_exit(node->links.next);
        other = next_exit(other->links.next);
    }
    return good;
}

static bool pair_dependencies(struct pairing *pairing, struct graph_node *node)
{
    struct graph_node *other = node->links.pair;
    if (node->links.dependency_count != other->links.dependency_count)
        return fail(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, other, NULL);
    for (size_t i = 0; i < node->links.dependency_count; i++) {
        struct graph_node *one = node->links.dependencies[i].node;
        struct graph_node *two = other->links.dependencies[i].node;
        if (one->links.pair != (two->links.pair ? two : NULL))
            return fail(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, other, two);
        if (!one->links.pair && !pair(pairing, one, two))
            return false;
    }
    return true;
}

static void clear_pairs(struct CUgraph_st *graph)
{
    for (struct graph_node *node = graph->first; node; node = node->links.next)
        node->links.pair = NULL;
}

static bool check_graph(struct CUgraph_st *target, struct CUgraph_st *source, uint64_t exec_flags,
                        CUgraphExecUpdateResultInfo *info);

static bool check_node(struct pairing *pairing, struct graph_node *node, uint64_t exec_flags)
{
    struct graph_node *other = node->links.pair;
    CUgraphExecUpdateResult why = graph_check_change(node, other, exec_flags);
    if (why != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return fail(pairing, why, other, NULL);
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return check_graph(node->params.child, other->params.child, exec_flags, pairing->info);
    bool good = true;
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        for (unsigned int i = 0; good && i < node->params.conditional.size; i++)
            good = check_graph(node->params.conditional.phGraph_out[i],
                               other->params.conditional.phGraph_out[i], exec_flags, pairing->info);
    return good;
}

/* Pairs the nodes and finds out whether each may change, in graphs inside too. */
static bool check_graph(struct CUgraph_st *target, struct CUgraph_st *source, uint64_t exec_flags,
                        CUgraphExecUpdateResultInfo *info)
{
    struct pairing pairing = {.info = info};
    if (target->count != source->count)
        return fail(&pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    pairing.queue = malloc((target->count + 1) * sizeof(struct graph_node *));
    if (!pairing.queue)
        return fail(&pairing, CU_GRAPH_EXEC_UPDATE_ERROR, NULL, NULL);
    clear_pairs(target);
    clear_pairs(source);
    bool good = pair_exits(&pairing, target, source);
    for (size_t i = 0; good && i < pairing.count; i++)
        good = pair_dependencies(&pairing, pairing.queue[i]);
    if (good && pairing.count != target->count) /* a cycle, of which no node is an exit */
        good = fail(&pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    for (size_t i = 0; good && i < pairing.count; i++)
        good = check_node(&pairing, pairing.queue[i], exec_flags);
    free(pairing.queue);
    return good;
}

/* ---- changing -------------------------------------------------------------------------------- */

static bool change_graph(struct CUgraph_st *target, const struct CUgraph_st *source);

static bool change_node(struct graph_node *node)
{
    struct graph_node *other = node->links.pair, work;
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return change_graph(node->params.child, other->params.child);
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        bool good = true;
        node->condition = other->condition;
        for (unsigned int i = 0; good && i < node->params.conditional.size; i++)
            good = change_graph(node->params.conditional.phGraph_out[i],
                                other->params.conditional.phGraph_out[i]);
        return good;
    }
    if (!graph_work_copy(&work, other))
        return false;
    graph_work_replace(node, &work);
    return true;
}

static bool change_graph(struct CUgraph_st *target, const struct CUgraph_st *source)
{
    struct user_reference *objects = NULL;
    if (!user_references_copy(&objects, source->objects))
        return false;
    bool good = true;
    for (struct graph_node *node = target->first; good && node; node = node->links.next)
        good = change_node(node);
    user_references_drop(&target->objects);
    target->objects = objects;
    return good;
}

CUresult graph_update(struct CUgraph_st *target, struct CUgraph_st *source, uint64_t exec_flags,
                      CUgraphExecUpdateResultInfo *info)
{
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    REFUSE_IF(!check_graph(target, source, exec_flags, info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    if (change_graph(target, source))
        return CUDA_SUCCESS;
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    return CUDA_ERROR_OUT_OF_MEMORY;
}
