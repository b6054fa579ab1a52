/* Memcpy and memset nodes: what copy.c moves, with the parameters that programs ask back for. */
#include "copy.h"
#include "graph.h"

CUresult graph_describe_copy(const CUDA_MEMCPY3D *params, CUcontext handle, struct graph_node *work)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(handle, &context));
    INVALID_IF(!params || !params->WidthInBytes || !params->Height || !params->Depth);
    struct region target, source;
    bool with_host;
    CHECK(copy_resolve_box(params, &target, &source));
    copy_describe(context->device, &target, &source, work, &with_host);
    work->context = context;
    work->params.copy = *params;
    return CUDA_SUCCESS;
}

static bool is_host_memory(uint64_t address)
{
    struct allocation found;
    return !memory_find(address, 1, &found) || allocation_on_host(&found);
}

/* Rows between slices, as the parameters count them. */
static size_t height_of(uint64_t slice_bytes, uint64_t pitch_bytes, uint64_t rows)
{
    return slice_bytes && pitch_bytes ? slice_bytes / pitch_bytes : rows;
}

/* A captured copy between arrays tells the memory behind them. */
void graph_complete_copy(struct graph_node *work)
{
    const struct copy_rows *box = &work->box;
    bool from_host = is_host_memory(work->source), to_host = is_host_memory(work->target);
    work->params.copy = (CUDA_MEMCPY3D){
        .srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcPitch = box->source_pitch_bytes ? box->source_pitch_bytes : work->bytes,
        .dstPitch = box->target_pitch_bytes ? box->target_pitch_bytes : work->bytes,
        .srcHeight = height_of(box->source_slice_bytes, box->source_pitch_bytes, box->rows),
        .dstHeight = height_of(box->target_slice_bytes, box->target_pitch_bytes, box->rows),
        .WidthInBytes = work->bytes,
        .Height = box->rows,
        .Depth = box->slices};
    if (from_host)
        work->params.copy.srcHost = (const void *)work->source;
    else
        work->params.copy.srcDevice = work->source;
    if (to_host)
        work->params.copy.dstHost = (void *)work->target;
    else
        work->params.copy.dstDevice = work->target;
}

/* ---- fills ----------------------------------------------------------------------------------- */

CUresult graph_describe_fill(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext handle,
                             struct graph_node *work)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(handle, &context));
    INVALID_IF(!params || !params->width || !params->height ||
               (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4) ||
               params->dst % params->elementSize);
    uint64_t row_bytes = (uint64_t)params->width * params->elementSize;
    INVALID_IF(params->width > UINT64_MAX / params->elementSize ||
               (params->height > 1 && params->pitch < row_bytes) ||
               !memory_find(params->dst, (params->height - 1) * params->pitch + row_bytes, NULL));
    struct region target = {.address = params->dst,
                            .width_bytes = row_bytes,
                            .rows = params->height,
                            .slices = 1,
                            .pitch_bytes = params->pitch};
    fill_describe(context->device, &target, params->value, params->elementSize, work);
    work->context = context;
    work->params.fill = *params;
    return CUDA_SUCCESS;
}

void graph_complete_fill(struct graph_node *work)
{
    work->params.fill = (CUDA_MEMSET_NODE_PARAMS){.dst = work->target,
                                                  .pitch = work->box.target_pitch_bytes,
                                                  .value = work->value,
                                                  .elementSize = work->value_bytes,
                                                  .width = work->bytes / work->value_bytes,
                                                  .height = work->box.rows};
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMCPY3D *params, CUcontext context)
{
    struct graph_node work;
    return graph_add(graph, dependencies, count, graph_describe_copy(params, context, &work), &work,
                     node);
}

GRAPH_NODE_CALLS(Memcpy, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_MEMCPY3D,
                 graph_describe_copy(params, node->context, &work))

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS *params,
                              CUcontext context)
{
    struct graph_node work;
    return graph_add(graph, dependencies, count, graph_describe_fill(params, context, &work), &work,
                     node);
}

GRAPH_NODE_CALLS(Memset, CU_GRAPH_NODE_TYPE_MEMSET, CUDA_MEMSET_NODE_PARAMS,
                 graph_describe_fill(params, node->context, &work))
