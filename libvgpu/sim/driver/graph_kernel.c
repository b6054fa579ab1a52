/* Kernel nodes. The arguments are copied when the node is made or changed: a block of pointers
 * with the values behind them. Of a kernel whose image does not tell its parameters (a cubin) only
 * the duration of `spin_ns` is kept, which is in the node's cost already. */
#include <stdlib.h>
#include <string.h>

#include "context_memory.h"
#include "graph.h"

static bool keep_values(struct graph_node *work, void **params)
{
    const struct CUfunc_st *function = work->function;
    uint32_t count = function->parameter_count == UINT32_MAX ? 0 : function->parameter_count;
    size_t bytes = count * sizeof(void *);
    for (uint32_t i = 0; i < count; i++)
        bytes += (function->parameters[i].bytes + 7u) & ~(size_t)7;
    if (!count)
        return true;
    char **block = malloc(bytes), *value = (char *)(block + count);
    if (!block)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        block[i] = value;
        memcpy(value, params[i], function->parameters[i].bytes);
        value += (function->parameters[i].bytes + 7u) & ~(size_t)7;
    }
    work->owned = block;
    work->owned_bytes = bytes;
    work->owned_pointers = count;
    work->params.kernel.kernelParams = (void **)block;
    return true;
}

struct packed_arguments {
    void *extra[5];
    size_t bytes;
    char values[];
};

static bool keep_buffer(struct graph_node *work, void **extra)
{
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
    }
    struct packed_arguments *block = malloc(sizeof *block + bytes);
    if (!block)
        return false;
    *block = (struct packed_arguments){.extra = {CU_LAUNCH_PARAM_BUFFER_POINTER, block->values,
                                                 CU_LAUNCH_PARAM_BUFFER_SIZE, &block->bytes,
                                                 CU_LAUNCH_PARAM_END},
                                       .bytes = bytes};
    if (buffer)
        memcpy(block->values, buffer, bytes);
    work->owned = block;
    work->owned_bytes = sizeof *block + bytes;
    work->owned_pointers = 5;
    work->params.kernel.extra = block->extra;
    return true;
}

bool graph_keep_arguments(struct graph_node *work, const struct launch *launch)
{
    work->params.kernel = (CUDA_KERNEL_NODE_PARAMS){.func = work->function,
                                                    .gridDimX = launch->grid[0],
                                                    .gridDimY = launch->grid[1],
                                                    .gridDimZ = launch->grid[2],
                                                    .blockDimX = launch->block[0],
                                                    .blockDimY = launch->block[1],
                                                    .blockDimZ = launch->block[2],
                                                    .sharedMemBytes = launch->shared_bytes,
                                                    .ctx = work->context};
    if (launch->params)
        return keep_values(work, launch->params);
    return !launch->extra || keep_buffer(work, launch->extra);
}

CUresult graph_describe_kernel(const CUDA_KERNEL_NODE_PARAMS *params, struct graph_node *work)
{
    DRIVER_CHECK();
    INVALID_IF(!params);
    struct CUctx_st *context;
    CHECK(context_given_or_current(params->ctx, &context));
    struct launch launch = {.grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
                            .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
                            .shared_bytes = params->sharedMemBytes,
                            .params = params->kernelParams,
                            .extra = params->extra};
    *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                .kernels = 1,
                                .kind = SIM_OPERATION_KERNEL,
                                .context = context,
                                .function = params->func ? params->func : (CUfunction)params->kern};
    struct launch_need need;
    CUresult result = launch_describe(work->function, context->device, &launch, &need);
    work->cost_ns = need.cost_ns;
    if (result != CUDA_SUCCESS)
        return result;
    REFUSE_IF(!graph_keep_arguments(work, &launch), CUDA_ERROR_OUT_OF_MEMORY);
    if (!params->func) { /* as it was given */
        work->params.kernel.func = NULL;
        work->params.kernel.kern = params->kern;
    }
    return CUDA_SUCCESS;
}

CUresult graph_prepare_kernels(const struct CUgraph_st *graph)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct graph_node *node = graph->first; node && result == CUDA_SUCCESS;
         node = node->links.next) {
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL && !function_is_plain(node->function) &&
            context_check(node->context, node->context->id) == CUDA_SUCCESS)
            result = context_prepare_function(node->context, node->function);
        else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = graph_prepare_kernels(node->params.child);
        else if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            for (unsigned int i = 0; i < node->params.conditional.size && result == CUDA_SUCCESS;
                 i++)
                result = graph_prepare_kernels(node->params.conditional.phGraph_out[i]);
    }
    return result;
}

CUDA_KERNEL_NODE_PARAMS graph_newer_kernel_params(const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = params->func,
                                     .gridDimX = params->gridDimX,
                                     .gridDimY = params->gridDimY,
                                     .gridDimZ = params->gridDimZ,
                                     .blockDimX = params->blockDimX,
                                     .blockDimY = params->blockDimY,
                                     .blockDimZ = params->blockDimZ,
                                     .sharedMemBytes = params->sharedMemBytes,
                                     .kernelParams = params->kernelParams,
                                     .extra = params->extra};
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct graph_node work;
    return graph_add(graph, dependencies, count, graph_describe_kernel(params, &work), &work, node);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    INVALID_IF(!params);
    CUDA_KERNEL_NODE_PARAMS newer = graph_newer_kernel_params(params);
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &newer);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params)
{
    return graph_tell(handle, CU_GRAPH_NODE_TYPE_KERNEL, params, sizeof *params);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS newer;
    CUresult result = cuGraphKernelNodeGetParams_v2(node, &newer);
    if (result == CUDA_SUCCESS && !params)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        memcpy(params, &newer, sizeof *params); /* the older one is the beginning of the newer */
    return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_KERNEL), work;
    INVALID_IF(!node);
    CHECK(graph_describe_kernel(params, &work));
    work.attributes = node->attributes; /* they are not parameters */
    node->attributes = NULL;
    graph_work_replace(node, &work);
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    INVALID_IF(!params);
    CUDA_KERNEL_NODE_PARAMS newer = graph_newer_kernel_params(params);
    return cuGraphKernelNodeSetParams_v2(node, &newer);
}

/* ---- attributes: kept, told, and compared by updates ----------------------------------------- */

static bool is_attribute(CUlaunchAttributeID attribute)
{
    return attribute > CU_LAUNCH_ATTRIBUTE_IGNORE && attribute < GRAPH_ATTRIBUTE_COUNT;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUlaunchAttributeID attribute,
                                       CUlaunchAttributeValue *value)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_KERNEL);
    INVALID_IF(!node || !value || !is_attribute(attribute));
    if (node->attributes)
        *value = node->attributes->values[attribute];
    else
        memset(value, 0, sizeof *value);
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID attribute,
                                       const CUlaunchAttributeValue *value)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_KERNEL);
    INVALID_IF(!node || !value || !is_attribute(attribute));
    if (!node->attributes)
        node->attributes = calloc(1, sizeof *node->attributes);
    REFUSE_IF(!node->attributes, CUDA_ERROR_OUT_OF_MEMORY);
    node->attributes->values[attribute] = *value;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode target_handle, CUgraphNode source_handle)
{
    DRIVER_CHECK();
    struct graph_node *target = graph_node_of_type(target_handle, CU_GRAPH_NODE_TYPE_KERNEL);
    struct graph_node *source = graph_node_of_type(source_handle, CU_GRAPH_NODE_TYPE_KERNEL);
    INVALID_IF(!target || !source);
    if (target == source)
        return CUDA_SUCCESS;
    struct graph_attributes *copy = NULL;
    if (source->attributes) {
        copy = malloc(sizeof *copy);
        REFUSE_IF(!copy, CUDA_ERROR_OUT_OF_MEMORY);
        *copy = *source->attributes;
    }
    free(target->attributes);
    target->attributes = copy;
    return CUDA_SUCCESS;
}
