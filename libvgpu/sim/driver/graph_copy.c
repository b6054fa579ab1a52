/* Memcpy and memset nodes, of up to three dimensions of linear memory. The bytes move in `run`;
 * copies from and to arrays are not modelled. */
#include <string.h>

#include "graph.h"

/* One side of a copy: a box in rows and slices. */
struct side {
    CUmemorytype type;
    char *base; /* of the whole memory */
    size_t x, y, z;
    size_t row_bytes, slice_rows;
};

static struct side source_of(const CUDA_MEMCPY3D *copy)
{
    const void *base =
        copy->srcMemoryType == CU_MEMORYTYPE_HOST ? copy->srcHost : (void *)copy->srcDevice;
    return (struct side){copy->srcMemoryType, (char *)base,   copy->srcXInBytes, copy->srcY,
                         copy->srcZ,          copy->srcPitch, copy->srcHeight};
}

static struct side target_of(const CUDA_MEMCPY3D *copy)
{
    void *base =
        copy->dstMemoryType == CU_MEMORYTYPE_HOST ? copy->dstHost : (void *)copy->dstDevice;
    return (struct side){copy->dstMemoryType, base,           copy->dstXInBytes, copy->dstY,
                         copy->dstZ,          copy->dstPitch, copy->dstHeight};
}

static char *at(const struct side *side, size_t row, size_t slice)
{
    return side->base + ((side->z + slice) * side->slice_rows + side->y + row) * side->row_bytes +
           side->x;
}

static void run_box(const struct graph_node *node)
{
    const CUDA_MEMCPY3D *copy = &node->params.copy;
    struct side source = source_of(copy), target = target_of(copy);
    for (size_t slice = 0; slice < copy->Depth; slice++)
        for (size_t row = 0; row < copy->Height; row++)
            memmove(at(&target, row, slice), at(&source, row, slice), copy->WidthInBytes);
}

/* Whether memory is on a device: not the host's, page-locked or not. */
static bool is_device_memory(uint64_t address)
{
    struct allocation found;
    return memory_find(address, 1, &found) && found.kind != ALLOCATION_HOST &&
           found.kind != ALLOCATION_REGISTERED;
}

static CUresult check_side(const struct side *side, const CUDA_MEMCPY3D *copy)
{
    if (side->type == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (side->type != CU_MEMORYTYPE_HOST && side->type != CU_MEMORYTYPE_DEVICE &&
        side->type != CU_MEMORYTYPE_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    bool has_rows = copy->Height > 1 || copy->Depth > 1 || side->y || side->z;
    bool has_slices = copy->Depth > 1 || side->z;
    if (!side->base || (has_rows && side->row_bytes < copy->WidthInBytes + side->x) ||
        (has_slices && side->slice_rows < copy->Height + side->y))
        return CUDA_ERROR_INVALID_VALUE;
    const char *first = at(side, 0, 0);
    const char *end = at(side, copy->Height - 1, copy->Depth - 1) + copy->WidthInBytes;
    if (side->type == CU_MEMORYTYPE_DEVICE &&
        !memory_find((uint64_t)first, (uint64_t)(end - first), NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static void set_cost(struct graph_node *work, uint64_t bytes, bool on_device)
{
    const struct sim_profile *profile = &work->context->device->identity->profile;
    work->kind = on_device ? SIM_OPERATION_MEMORY : SIM_OPERATION_TRANSFER;
    work->cost_ns =
        on_device ? device_copy_cost_ns(profile, bytes) : transfer_cost_ns(profile, bytes);
}

CUresult graph_describe_copy(const CUDA_MEMCPY3D *params, CUcontext handle, struct graph_node *work)
{
    struct CUctx_st *context;
    CUresult result = graph_resolve_context(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!params || !params->WidthInBytes || !params->Height || !params->Depth || params->srcLOD ||
        params->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    struct side source = source_of(params), target = target_of(params);
    result = check_side(&source, params);
    if (result == CUDA_SUCCESS)
        result = check_side(&target, params);
    if (result != CUDA_SUCCESS)
        return result;
    *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                .run = run_box,
                                .context = context,
                                .params.copy = *params};
    set_cost(work, params->WidthInBytes * params->Height * params->Depth,
             is_device_memory((uint64_t)at(&source, 0, 0)) &&
                 is_device_memory((uint64_t)at(&target, 0, 0)));
    return CUDA_SUCCESS;
}

void graph_complete_copy(struct graph_node *work)
{
    bool from_device = is_device_memory(work->source), to_device = is_device_memory(work->target);
    work->kind = from_device && to_device ? SIM_OPERATION_MEMORY : SIM_OPERATION_TRANSFER;
    work->params.copy =
        (CUDA_MEMCPY3D){.srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                        .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                        .srcPitch = work->bytes,
                        .dstPitch = work->bytes,
                        .WidthInBytes = work->bytes,
                        .Height = 1,
                        .Depth = 1};
    if (from_device)
        work->params.copy.srcDevice = work->source;
    else
        work->params.copy.srcHost = (const void *)work->source;
    if (to_device)
        work->params.copy.dstDevice = work->target;
    else
        work->params.copy.dstHost = (void *)work->target;
}

/* ---- fills ----------------------------------------------------------------------------------- */

static void run_rows(const struct graph_node *node)
{
    const CUDA_MEMSET_NODE_PARAMS *fill = &node->params.fill;
    for (size_t row = 0; row < fill->height; row++) {
        char *target = (char *)fill->dst + row * fill->pitch;
        if (fill->elementSize == 1)
            memset(target, (int)fill->value, fill->width);
        else
            for (size_t i = 0; i < fill->width; i++)
                memcpy(target + i * fill->elementSize, &fill->value, fill->elementSize);
    }
}

CUresult graph_describe_fill(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext handle,
                             struct graph_node *work)
{
    struct CUctx_st *context;
    CUresult result = graph_resolve_context(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!params || !params->width || !params->height ||
        (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4) ||
        params->dst % params->elementSize)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t row_bytes = (uint64_t)params->width * params->elementSize;
    if (params->width > UINT64_MAX / params->elementSize ||
        (params->height > 1 && params->pitch < row_bytes) ||
        !memory_find(params->dst, (params->height - 1) * params->pitch + row_bytes, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct graph_node){.type = CU_GRAPH_NODE_TYPE_MEMSET,
                                .run = run_rows,
                                .context = context,
                                .params.fill = *params};
    set_cost(work, row_bytes * params->height, true);
    return CUDA_SUCCESS;
}

void graph_complete_fill(struct graph_node *work)
{
    work->kind = SIM_OPERATION_MEMORY;
    work->params.fill = (CUDA_MEMSET_NODE_PARAMS){.dst = work->target,
                                                  .value = work->value,
                                                  .elementSize = work->value_bytes,
                                                  .width = work->bytes / work->value_bytes,
                                                  .height = 1};
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMCPY3D *params, CUcontext context)
{
    struct graph_node work;
    CUresult result = graph_describe_copy(params, context, &work);
    return result == CUDA_SUCCESS ? graph_attach(graph, dependencies, NULL, count, &work, node)
                                  : result;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *params)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (!node || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->params.copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode handle, const CUDA_MEMCPY3D *params)
{
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_MEMCPY), work;
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_describe_copy(params, node->context, &work);
    if (result == CUDA_SUCCESS)
        graph_work_replace(node, &work);
    return result;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS *params,
                              CUcontext context)
{
    struct graph_node work;
    CUresult result = graph_describe_fill(params, context, &work);
    return result == CUDA_SUCCESS ? graph_attach(graph, dependencies, NULL, count, &work, node)
                                  : result;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *params)
{
    DRIVER_CHECK();
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_MEMSET);
    if (!node || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->params.fill;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS *params)
{
    struct graph_node *node = graph_node_of_type(handle, CU_GRAPH_NODE_TYPE_MEMSET), work;
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_describe_fill(params, node->context, &work);
    if (result == CUDA_SUCCESS)
        graph_work_replace(node, &work);
    return result;
}
