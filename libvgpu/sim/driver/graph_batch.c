/* Nodes of memory operations: words that are written, and words that are waited for by looking
 * again every WAIT_STEP_NS, on the thread of the driver that runs host functions. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph.h"

#define WAIT_STEP_NS 20000
#define MOST_OPERATIONS 256 /* as documented for cuStreamBatchMemOp */

static bool is_64(CUstreamBatchMemOpType operation)
{
    return operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
           operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool is_satisfied(uint64_t seen, const CUstreamBatchMemOpParams *operation)
{
    bool wide = operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    uint64_t value = wide ? operation->waitValue.value64 : operation->waitValue.value;
    switch (operation->waitValue.flags & ~(unsigned int)CU_STREAM_WAIT_VALUE_FLUSH) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic */
        return wide ? (int64_t)(seen - value) >= 0
                    : (int32_t)((uint32_t)seen - (uint32_t)value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return seen == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (seen & value) != 0;
    default: /* NOR */
        return (wide ? ~(seen | value) : (uint32_t)~(seen | value)) != 0;
    }
}

static uint64_t read_word(const CUstreamBatchMemOpParams *operation)
{
    if (is_64(operation->operation))
        return __atomic_load_n((const uint64_t *)operation->waitValue.address, __ATOMIC_ACQUIRE);
    return __atomic_load_n((const uint32_t *)operation->waitValue.address, __ATOMIC_ACQUIRE);
}

static void run_batch(const struct graph_node *node)
{
    const struct timespec step = {.tv_nsec = WAIT_STEP_NS};
    for (unsigned int i = 0; i < node->params.batch.count; i++) {
        const CUstreamBatchMemOpParams *operation = &node->params.batch.paramArray[i];
        if (operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
            __atomic_store_n((uint32_t *)operation->writeValue.address, operation->writeValue.value,
                             __ATOMIC_RELEASE);
        else if (operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
            __atomic_store_n((uint64_t *)operation->writeValue.address,
                             operation->writeValue.value64, __ATOMIC_RELEASE);
        else if (operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                 operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            while (!is_satisfied(read_word(operation), operation))
                nanosleep(&step, NULL);
    }
}

static CUresult check_operation(const CUstreamBatchMemOpParams *operation)
{
    size_t bytes = is_64(operation->operation) ? 8 : 4;
    switch (operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        if ((operation->waitValue.flags & ~(unsigned int)CU_STREAM_WAIT_VALUE_FLUSH) > 3)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return operation->waitValue.address % bytes == 0 &&
                   memory_find(operation->waitValue.address, bytes, NULL)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_describe_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct graph_node *work)
{
    struct CUctx_st *context;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_resolve_context(params->ctx, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!params->count || params->count > MOST_OPERATIONS || !params->paramArray || params->flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < params->count && result == CUDA_SUCCESS; i++)
        result = check_operation(&params->paramArray[i]);
    if (result != CUDA_SUCCESS)
        return result;
    size_t bytes = params->count * sizeof *params->paramArray;
    *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                .run = run_batch,
                                .context = context,
                                .params.batch = *params,
                                .owned = malloc(bytes),
                                .owned_bytes = bytes};
    if (!work->owned)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(work->owned, params->paramArray, bytes);
    work->params.batch.paramArray = work->owned;
    return CUDA_SUCCESS;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    struct graph_node work;
    CUresult result = graph_describe_batch(params, &work);
    return result == CUDA_SUCCESS ? graph_attach(graph, dependencies, NULL, count, &work, node)
                                  : result;
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    if (!node || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->params.batch;
    return CUDA_SUCCESS;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode handle,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP), work;
    CUresult result = node ? graph_describe_batch(params, &work) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        graph_work_replace(node, &work);
    return result;
}
