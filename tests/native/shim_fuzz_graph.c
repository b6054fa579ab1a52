/* Graphs that hold memory, and captures around allocations. */
#include "shim_fuzz.h"

#define MOST_BYTES ((size_t)2 << 20)
#define MOST_NODES 4

static CUgraph graphs[5];
static CUgraphExec execs[6];
static CUdeviceptr unfreed[8]; /* of graphs that leave memory behind */

static void keep(int result, const CUgraph *graph)
{
    CUgraph *place = ANY(graphs);
    if (result != CUDA_SUCCESS)
        return;
    if (*place != NULL)
        SAY(cuGraphDestroy(*place));
    *place = *graph;
}

static void build(void)
{
    CUgraph graph;
    CUgraphNode node = NULL, before;
    if (SAY(cuGraphCreate(&graph, 0)) != CUDA_SUCCESS)
        return;
    for (uint64_t i = 1 + roll(MOST_NODES); i > 0; i--) {
        CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
            .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)roll(GPUS)}},
            .bytesize = one_in(12) ? 0 : 1 + roll(MOST_BYTES)};
        if (one_in(10))
            wanted.poolProps.location.id = 9;
        before = node;
        if (SAY(cuGraphAddMemAllocNode(&node, graph, &before, before != NULL, &wanted)) !=
            CUDA_SUCCESS) {
            node = before;
            continue;
        }
        if (one_in(4)) {
            *ANY(unfreed) = wanted.dptr;
            continue;
        }
        before = node;
        if (SAY(cuGraphAddMemFreeNode(&node, graph, &before, 1, wanted.dptr)) != CUDA_SUCCESS)
            node = before;
    }
    keep(CUDA_SUCCESS, &graph);
}

static void nest(void)
{
    CUgraph graph, child = *ANY(graphs);
    CUgraphNode node;
    if (child == NULL || SAY(cuGraphCreate(&graph, 0)) != CUDA_SUCCESS)
        return;
    SAY(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    keep(CUDA_SUCCESS, &graph);
}

static void copy(void)
{
    CUgraph clone, graph = *ANY(graphs);
    if (graph != NULL)
        keep(SAY(cuGraphClone(&clone, graph)), &clone);
}

static void capture(void)
{
    CUstream stream = fuzz.streams[1 + 2 * roll(GPUS)];
    CUdeviceptr address = UNTOUCHED;
    CUgraph graph = NULL;
    if (SAY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED)) != CUDA_SUCCESS)
        return;
    int result = SAY(cuMemAllocAsync(&address, 1 + roll(MOST_BYTES), stream));
    fuzz_untouched(result, address);
    if (one_in(3)) { /* next to the capture */
        CUdeviceptr plain = UNTOUCHED;
        if (SAY(cuMemAlloc_v2(&plain, fuzz_bytes(MOST_BYTES))) == CUDA_SUCCESS)
            SAY(cuMemFree_v2(plain));
        memory_step();
    }
    if (result == CUDA_SUCCESS && !one_in(4))
        SAY(cuMemFreeAsync(address, stream));
    else if (result == CUDA_SUCCESS)
        *ANY(unfreed) = address;
    keep(SAY(cuStreamEndCapture(stream, &graph)), &graph);
}

static void make_executable(void)
{
    static const unsigned long long kinds[] = {0, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
                                               CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                               CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH, 1 << 20};
    CUgraph graph = *ANY(graphs);
    CUgraphExec exec = NULL, *place = ANY(execs);
    CUgraphNode error;
    char log[64];
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = *ANY(kinds), .hUploadStream = fuzz_stream()};
    int result;
    if (graph == NULL)
        return;
    switch (roll(5)) {
    case 0:
        result = SAY(cuGraphInstantiate(&exec, graph, &error, log, sizeof log));
        break;
    case 1:
        result = SAY(cuGraphInstantiate_v2(&exec, graph, &error, log, sizeof log));
        break;
    case 2:
        result = SAY(cuGraphInstantiateWithParams(&exec, graph, &params));
        break;
    case 3:
        result = SAY(cuGraphInstantiateWithParams_ptsz(&exec, graph, &params));
        break;
    default:
        result = SAY(cuGraphInstantiateWithFlags(&exec, graph, params.flags));
    }
    if (result != CUDA_SUCCESS)
        return;
    /* one that the driver could not destroy lives on, and may be launched */
    if (*place != NULL && SAY(cuGraphExecDestroy(*place)) != CUDA_SUCCESS && one_in(2)) {
        SAY(cuGraphLaunch(*place, fuzz_stream()));
        SAY(cuGraphExecDestroy(exec));
        return;
    }
    *place = exec;
}

static void use(CUgraphExec exec)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph graph = *ANY(graphs);
    if (exec == NULL)
        return;
    switch (roll(8)) {
    case 0:
        SAY(cuGraphUpload(exec, fuzz_stream()));
        return;
    case 1:
        SAY(cuGraphUpload_ptsz(exec, fuzz_stream()));
        return;
    case 2:
        if (graph != NULL)
            SAY(cuGraphExecUpdate_v2(exec, graph, &info));
        return;
    case 3:
        SAY(cuGraphLaunch_ptsz(exec, fuzz_stream()));
        return;
    default:
        SAY(cuGraphLaunch(exec, fuzz_stream()));
    }
}

void graph_step(void)
{
    switch (roll(16)) {
    case 0 ... 1:
        build();
        return;
    case 2:
        nest();
        return;
    case 3:
        copy();
        return;
    case 4:
        capture();
        return;
    case 5 ... 7:
        make_executable();
        return;
    case 8:
        SAY(cuDeviceGraphMemTrim((CUdevice)roll(GPUS + 1)));
        return;
    case 9 ... 10:
        SAY(cuMemFreeAsync(*ANY(unfreed), fuzz_stream()));
        return;
    case 11:
        SAY(cuMemFree_v2(*ANY(unfreed)));
        return;
    default:
        use(*ANY(execs));
    }
}

void graph_rest(void)
{
    for (int i = 0; i < GPUS; i++)
        SAY(cuDeviceGraphMemTrim(i));
}
