/* Nodes of operations on words of memory. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "memory_operation.h"

static void run_batch(const struct graph_node *node)
{
    memory_operations_run(node->params.batch.paramArray, node->params.batch.count);
}

CUresult graph_describe_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct graph_node *work)
{
    struct CUctx_st *context;
    INVALID_IF(!params);
    CHECK(context_given_or_current(params->ctx, &context));
    INVALID_IF(params->flags);
    CHECK(memory_operations_check(params->paramArray, params->count));
    size_t bytes = params->count * sizeof *params->paramArray;
    *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                .run = run_batch,
                                .context = context,
                                .params.batch = *params,
                                .owned = malloc(bytes),
                                .owned_bytes = bytes};
    REFUSE_IF(!work->owned, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(work->owned, params->paramArray, bytes);
    work->params.batch.paramArray = work->owned;
    return CUDA_SUCCESS;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    struct graph_node work;
    return graph_add(graph, dependencies, count, graph_describe_batch(params, &work), &work, node);
}

GRAPH_NODE_CALLS(BatchMemOp, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS,
                 graph_describe_batch(params, &work))
