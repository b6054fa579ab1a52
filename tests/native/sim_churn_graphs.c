/* Graphs and captures for the churning client. */
#include "sim_churn.h"

#define TAKEN_BYTES (3 << 20)
#define SPINS 3

static CUDA_KERNEL_NODE_PARAMS spin_params(struct churn *churn, void **params,
                                           unsigned long long *ns)
{
    *ns = below(churn, LONGEST_NS);
    params[0] = ns;
    return (CUDA_KERNEL_NODE_PARAMS){.func = churn->spin,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

static CUgraph spinning_graph(struct churn *churn)
{
    CUgraph graph;
    CUgraphNode node = NULL;
    MUST(cuGraphCreate(&graph, 0));
    for (int i = 0; i < SPINS; i++) {
        unsigned long long ns;
        void *params[1];
        CUDA_KERNEL_NODE_PARAMS spin = spin_params(churn, params, &ns);
        CUgraphNode before = node;
        MUST(cuGraphAddKernelNode_v2(&node, graph, &before, before != NULL, &spin));
    }
    return graph;
}

static CUgraph allocating_graph(struct churn *churn)
{
    CUgraph graph;
    CUgraphNode taken, filled, given;
    CUDA_MEM_ALLOC_NODE_PARAMS taking = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = TAKEN_BYTES};
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemAllocNode(&taken, graph, NULL, 0, &taking));
    CUDA_MEMSET_NODE_PARAMS filling = {
        .dst = taking.dptr, .elementSize = 1, .width = 100, .height = 1, .value = 1};
    MUST(cuGraphAddMemsetNode(&filled, graph, &taken, 1, &filling, churn->context));
    MUST(cuGraphAddMemFreeNode(&given, graph, &filled, 1, taking.dptr));
    return graph;
}

void graphs_begin(struct churn *churn, struct graphs *graphs)
{
    CUgraph allocating = allocating_graph(churn);
    graphs->spins = spinning_graph(churn);
    MUST(cuGraphInstantiateWithFlags(&graphs->spinning, graphs->spins, 0));
    MUST(cuGraphInstantiateWithFlags(&graphs->allocating, allocating, 0));
    MUST(cuGraphDestroy(allocating)); /* what was made of it needs it no more */
    graphs->captured = NULL;
}

void graphs_end(struct graphs *graphs)
{
    if (graphs->captured)
        MUST(cuGraphExecDestroy(graphs->captured));
    MUST(cuGraphExecDestroy(graphs->allocating));
    MUST(cuGraphExecDestroy(graphs->spinning));
    MUST(cuGraphDestroy(graphs->spins));
}

void graphs_launch(struct churn *churn, struct graphs *graphs, CUstream stream)
{
    unsigned int which = below(churn, 8);
    if (which == 0)
        MUST(cuDeviceGraphMemTrim(0));
    else if (which < 4)
        MUST(cuGraphLaunch(graphs->allocating, stream));
    else if (which < 6 && graphs->captured)
        MUST(cuGraphLaunch(graphs->captured, stream));
    else
        MUST(cuGraphLaunch(graphs->spinning, stream));
}

void graphs_update(struct churn *churn, struct graphs *graphs)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph another = spinning_graph(churn);
    MUST(cuGraphExecUpdate_v2(graphs->spinning, another, &info));
    MUST(cuGraphDestroy(graphs->spins));
    graphs->spins = another;
}

void graphs_capture(struct churn *churn, struct graphs *graphs)
{
    /* not the blocking one, since other calls of this client use the default stream */
    CUstream first = churn->streams[1], second = churn->streams[2];
    CUevent fork, join;
    CUgraph graph;
    CUdeviceptr address;
    unsigned long long ns = below(churn, LONGEST_NS);
    void *params[] = {&ns};
    MUST(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CUstreamCaptureMode mode =
        churn->alone ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    MUST(cuStreamBeginCapture_v2(first, mode + below(churn, 2)));
    MUST(cuMemAllocAsync(&address, TAKEN_BYTES, first));
    MUST(cuEventRecord(fork, first));
    MUST(cuStreamWaitEvent(second, fork, 0));
    MUST(cuLaunchKernel(churn->spin, 1, 1, 1, 1, 1, 1, 0, second, params, NULL));
    MUST(cuMemsetD8Async(address, 3, 1000, first));
    MUST(cuEventRecord(join, second));
    MUST(cuStreamWaitEvent(first, join, 0));
    MUST(cuMemFreeAsync(address, first));
    MUST(cuStreamEndCapture(first, &graph));
    if (graphs->captured)
        MUST(cuGraphExecDestroy(graphs->captured));
    MUST(cuGraphInstantiateWithFlags(&graphs->captured, graph, 0));
    MUST(cuGraphDestroy(graph));
    MUST(cuEventDestroy_v2(fork));
    MUST(cuEventDestroy_v2(join));
}
