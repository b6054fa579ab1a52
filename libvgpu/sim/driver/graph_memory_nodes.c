/* Nodes that allocate and free memory; what they mean at a launch is in graph_memory.c. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "graph_memory.h"

CUresult graph_describe_allocation(CUDA_MEM_ALLOC_NODE_PARAMS *params, CUgraph graph,
                                   struct graph_node *work)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!params || !graph_is_graph(graph) || !params->bytesize ||
               (params->accessDescCount && !params->accessDescs) ||
               params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
               params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE);
    /* graph memory cannot be shared */
    REFUSE_IF(params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    struct driver_device *device = device_of(params->poolProps.location.id);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    if (device != context->device) { /* memory of a device needs a context there */
        REFUSE_IF(!device->primary.alive, CUDA_ERROR_INVALID_CONTEXT);
        context = &device->primary;
    }
    size_t access_bytes = params->accessDescCount * sizeof *params->accessDescs;
    *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                .context = context,
                                .params.allocation = *params,
                                .owned = access_bytes ? malloc(access_bytes) : NULL,
                                .owned_bytes = access_bytes};
    REFUSE_IF(access_bytes && !work->owned, CUDA_ERROR_OUT_OF_MEMORY);
    if (access_bytes)
        memcpy(work->owned, params->accessDescs, access_bytes);
    work->params.allocation.accessDescs = work->owned;
    CUresult result = graph_memory_create(context, params->bytesize, graph->id, &work->allocation,
                                          &work->params.allocation.dptr);
    if (result == CUDA_SUCCESS)
        params->dptr = work->params.allocation.dptr;
    else
        free(work->owned);
    return result;
}

static bool frees(const struct CUgraph_st *graph, CUdeviceptr address)
{
    for (const struct graph_node *node = graph->first; node; node = node->links.next)
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->params.allocation.dptr == address)
            return true;
    return false;
}

CUresult graph_describe_free(CUdeviceptr address, CUgraph graph, struct graph_node *work)
{
    DRIVER_CHECK();
    struct graph_allocation *allocation;
    INVALID_IF(!graph_is_graph(graph) || frees(graph, address));
    CHECK(graph_memory_claim(address, graph->id, &allocation));
    *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_MEM_FREE,
                                .allocation = allocation,
                                .params.allocation.dptr = address};
    return CUDA_SUCCESS;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct graph_node work;
    return graph_add(graph, dependencies, count, graph_describe_allocation(params, graph, &work),
                     &work, node);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    return graph_tell(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params, sizeof *params);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUdeviceptr address)
{
    struct graph_node work;
    return graph_add(graph, dependencies, count, graph_describe_free(address, graph, &work), &work,
                     node);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *address)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_MEM_FREE);
    INVALID_IF(!node || !address);
    *address = node->params.allocation.dptr;
    return CUDA_SUCCESS;
}
