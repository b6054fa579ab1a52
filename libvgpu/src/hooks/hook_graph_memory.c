/* Hooks of graphs that hold memory: what they need is noted when they are made executable, and
 * reserved when they are uploaded or launched (the launches are in hook_launch.c). */
#include "compute/cap/collective.h"
#include "hooks/hook.h"
#include "memory/graphs/graph_memory.h"
#include "memory/local/local_memory.h"
#include "memory/pools/pool.h"
#include "slice/region.h"

/* An executable graph that is being made. */
struct instantiation {
    struct graph_need need;
    struct local_growth growth; /* of its kernels' local memory, which is taken at once */
    bool takes_memory;          /* at once */
};

/* Before the driver's call: CUDA_SUCCESS, or what the hook returns. */
static CUresult instantiate_begin(struct instantiation *making, CUgraph graph, bool takes_memory)
{
    CUresult result = graph_need_of(graph, &making->need);
    making->takes_memory = takes_memory && making->need.count > 0;
    making->growth = (struct local_growth){0};
    if (result == CUDA_SUCCESS)
        result = local_memory_begin_graph(&making->growth, making->need.local_bytes_a_thread);
    if (result == CUDA_SUCCESS && making->takes_memory)
        result = graph_memory_begin(&making->need);
    if (result != CUDA_SUCCESS)
        local_memory_end(&making->growth, result);
    return result;
}

static CUresult instantiate_end(struct instantiation *making, CUresult result,
                                const CUgraphExec *exec)
{
    if (making->takes_memory)
        graph_memory_end(&making->need);
    local_memory_end(&making->growth, result);
    if (result == CUDA_SUCCESS) {
        graph_memory_keep(*exec, &making->need);
        collective_keep(*exec, making->need.has_collective);
    }
    return result;
}

#define TAKES_AT_ONCE \
    (CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)

VGPU_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                        char *log, size_t log_bytes)
{
    NEEDS(cuGraphInstantiate);
    ALONE_WITHOUT(exec, cuGraphInstantiate(exec, graph, error_node, log, log_bytes));
    struct instantiation making;
    CUresult result = instantiate_begin(&making, graph, false);
    if (result != CUDA_SUCCESS)
        return result;
    return instantiate_end(&making,
                           real.cuGraphInstantiate(exec, graph, error_node, log, log_bytes), exec);
}

VGPU_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph,
                                           CUgraphNode *error_node, char *log, size_t log_bytes)
{
    NEEDS(cuGraphInstantiate_v2);
    ALONE_WITHOUT(exec, cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes));
    struct instantiation making;
    CUresult result = instantiate_begin(&making, graph, false);
    if (result != CUDA_SUCCESS)
        return result;
    return instantiate_end(
        &making, real.cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes), exec);
}

VGPU_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                 unsigned long long flags)
{
    NEEDS(cuGraphInstantiateWithFlags);
    ALONE_WITHOUT(exec, cuGraphInstantiateWithFlags(exec, graph, flags));
    struct instantiation making;
    CUresult result = instantiate_begin(&making, graph, (flags & TAKES_AT_ONCE) != 0);
    if (result != CUDA_SUCCESS)
        return result;
    return instantiate_end(&making, real.cuGraphInstantiateWithFlags(exec, graph, flags), exec);
}

#define WITH_PARAMS(symbol) \
    VGPU_EXPORT CUresult symbol(CUgraphExec *exec, CUgraph graph, \
                                CUDA_GRAPH_INSTANTIATE_PARAMS *params) \
    { \
        NEEDS(symbol); \
        ALONE_WITHOUT(exec, symbol(exec, graph, params)); \
        struct instantiation making; \
        CUresult result = instantiate_begin( \
            &making, graph, params != NULL && (params->flags & TAKES_AT_ONCE) != 0); \
        if (result != CUDA_SUCCESS) \
            return result; \
        return instantiate_end(&making, real.symbol(exec, graph, params), exec); \
    }

WITH_PARAMS(cuGraphInstantiateWithParams)
WITH_PARAMS(cuGraphInstantiateWithParams_ptsz)

#define UPLOAD(symbol) \
    VGPU_EXPORT CUresult symbol(CUgraphExec exec, CUstream stream) \
    { \
        NEEDS(symbol); \
        return graph_memory_call(exec, stream, real.symbol); \
    }

UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

/* ---- what changes the kernels of an executable graph ---- */

/* What only changes a part of the graph cannot tell that the rest has no collective. */
static CUresult update_end(CUgraphExec exec, struct local_growth *growth, bool has_collective,
                           bool is_whole, CUresult result)
{
    if (result == CUDA_SUCCESS && (has_collective || is_whole))
        collective_keep(exec, has_collective);
    return local_memory_end(growth, result);
}

#define UPDATE(symbol, is_whole, arguments, values) \
    VGPU_EXPORT CUresult symbol arguments \
    { \
        NEEDS(symbol); \
        struct instantiation making; \
        CUresult refusal = instantiate_begin(&making, graph, false); \
        if (refusal != CUDA_SUCCESS) \
            return refusal; \
        return update_end(exec, &making.growth, making.need.has_collective, is_whole, \
                          real.symbol values); \
    }

UPDATE(cuGraphExecUpdate, true,
       (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result),
       (exec, graph, error_node, result))
UPDATE(cuGraphExecUpdate_v2, true,
       (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result),
       (exec, graph, result))
UPDATE(cuGraphExecChildGraphNodeSetParams, false,
       (CUgraphExec exec, CUgraphNode node, CUgraph graph), (exec, node, graph))

#define SET_KERNEL(symbol, form, is_kernel, function, kernel) \
    VGPU_EXPORT CUresult symbol(CUgraphExec exec, CUgraphNode node, form *params) \
    { \
        NEEDS(symbol); \
        struct local_growth growth; \
        bool is_told = params != NULL && (is_kernel); \
        CUresult result = local_memory_begin_graph( \
            &growth, is_told ? local_memory_of(function, kernel) : (uint64_t)0); \
        if (result != CUDA_SUCCESS) \
            return result; \
        return update_end(exec, &growth, is_told && collective_is_node(function, kernel), false, \
                          real.symbol(exec, node, params)); \
    }

SET_KERNEL(cuGraphExecKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1, true, params->func,
           NULL)
SET_KERNEL(cuGraphExecKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS, true, params->func,
           params->kern)
SET_KERNEL(cuGraphExecNodeSetParams, CUgraphNodeParams, params->type == CU_GRAPH_NODE_TYPE_KERNEL,
           params->kernel.func, params->kernel.kern)

VGPU_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    NEEDS(cuGraphExecDestroy);
    /* before the driver: the next graph may get the same handle at once. One that is in use is
     * destroyed all the same, when it is done. */
    struct graph_need need;
    graph_memory_find(exec, &need);
    graph_memory_forget(exec);
    bool has_collective = collective_is_known(exec);
    collective_keep(exec, false);
    CUresult result = real.cuGraphExecDestroy(exec);
    if (result != CUDA_SUCCESS) {
        graph_memory_keep(exec, &need);
        collective_keep(exec, has_collective);
    }
    return result;
}

VGPU_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    NEEDS(cuDeviceGraphMemTrim);
    CUresult result = real.cuDeviceGraphMemTrim(device);
    struct pool *pool = result == CUDA_SUCCESS ? pool_lock_of_graphs(device) : NULL;
    if (pool != NULL)
        pool_trimmed(pool);
    return result;
}
