/* Hooks of graphs that hold memory: what they need is noted when they are made executable, and
 * reserved when they are uploaded or launched (the launches are in hook_launch.c). */
#include "hooks/hook.h"
#include "memory/graph_memory.h"
#include "memory/pool.h"
#include "slice/region.h"

/* Makes an executable graph by `call`, which takes memory at once if `takes_memory`. */
#define INSTANTIATE(exec, graph, takes_memory, call) \
    do { \
        struct graph_need need_; \
        CUresult result_ = graph_need_of(graph, &need_); \
        bool takes_ = (takes_memory) && need_.count > 0; \
        if (result_ == CUDA_SUCCESS && takes_) \
            result_ = graph_memory_begin(&need_); \
        if (result_ != CUDA_SUCCESS) \
            return result_; \
        result_ = (call); \
        if (takes_) \
            graph_memory_end(&need_); \
        if (result_ == CUDA_SUCCESS) \
            graph_memory_keep(*(exec), &need_); \
        return result_; \
    } while (0)

#define TAKES_AT_ONCE \
    (CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)

VGPU_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                        char *log, size_t log_bytes)
{
    NEED(cuGraphInstantiate);
    INSTANTIATE(exec, graph, false,
                real.cuGraphInstantiate(exec, graph, error_node, log, log_bytes));
}

VGPU_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph,
                                           CUgraphNode *error_node, char *log, size_t log_bytes)
{
    NEED(cuGraphInstantiate_v2);
    INSTANTIATE(exec, graph, false,
                real.cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes));
}

VGPU_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                 unsigned long long flags)
{
    NEED(cuGraphInstantiateWithFlags);
    INSTANTIATE(exec, graph, flags & TAKES_AT_ONCE,
                real.cuGraphInstantiateWithFlags(exec, graph, flags));
}

#define WITH_PARAMS(symbol) \
    VGPU_EXPORT CUresult symbol(CUgraphExec *exec, CUgraph graph, \
                                CUDA_GRAPH_INSTANTIATE_PARAMS *params) \
    { \
        NEED(symbol); \
        INSTANTIATE(exec, graph, params != NULL && params->flags & TAKES_AT_ONCE, \
                    real.symbol(exec, graph, params)); \
    }

WITH_PARAMS(cuGraphInstantiateWithParams)
WITH_PARAMS(cuGraphInstantiateWithParams_ptsz)

#define UPLOAD(symbol) \
    VGPU_EXPORT CUresult symbol(CUgraphExec exec, CUstream stream) \
    { \
        NEED(symbol); \
        return graph_memory_call(exec, stream, real.symbol); \
    }

UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

VGPU_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    NEED(cuGraphExecDestroy);
    /* before the driver: the next graph may get the same handle at once. One that is in use is
     * destroyed all the same, when it is done. */
    struct graph_need need;
    graph_memory_find(exec, &need);
    graph_memory_forget(exec);
    CUresult result = real.cuGraphExecDestroy(exec);
    if (result != CUDA_SUCCESS)
        graph_memory_keep(exec, &need);
    return result;
}

VGPU_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    NEED(cuDeviceGraphMemTrim);
    CUresult result = real.cuDeviceGraphMemTrim(device);
    struct pool *pool = result == CUDA_SUCCESS ? pool_lock_of_graphs(device) : NULL;
    if (pool != NULL)
        pool_trimmed(pool);
    return result;
}
