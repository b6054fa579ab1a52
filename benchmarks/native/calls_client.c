/*
 * Prints what calls of the driver cost the host, and what events and launches cost the GPU, for the
 * figure `silicon`; for a simulated and a real GPU. A line is "NS NAME": the mean of a batch of
 * calls, and of five batches the least. A call that takes what another one gave is timed with it.
 *
 * Argument: rounds_per_ms=NUMBER (of the GPU, as client.h tells). What is on the
 * GPU while calls are timed is told by the name; the GPU is idle where it says
 * nothing. One thread does everything.
 */
#include <string.h>

#include "client.h"

#define BATCHES 5
#define MIB ((size_t)1 << 20)
#define BUSY_NS 5000000ull /* longer than what is launched behind it takes the host */
#define LONE_NS 10000ull
#define IN_A_ROW 100
#define NODES 20

static const char ptx[] = CLIENT_PTX_BEGIN CLIENT_PTX_SPIN;
static CUfunction spin;
static uint64_t rounds_per_ms;
static CUstream stream;
static CUevent event;

static void launch(uint64_t duration_ns)
{
    struct client_spin work = client_spin(duration_ns, rounds_per_ms, 1, 1);
    void *params[] = CLIENT_SPIN_PARAMS(work);
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void launch_ex(uint64_t duration_ns)
{
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
    struct client_spin work = client_spin(duration_ns, rounds_per_ms, 1, 1);
    void *params[] = CLIENT_SPIN_PARAMS(work);
    MUST(cuLaunchKernelEx(&config, spin, params, NULL));
}

static void wait_for_gpu(void)
{
    MUST(cuStreamSynchronize(stream));
}

static void tell(const char *name, double ns)
{
    printf("%.0f %s\n", ns, name);
}

/* Times `call`, `count` times in a row; `before` and `after` each batch are not timed. */
#define TIME(name, count, before, call, after) \
    do { \
        double best_ns = 0; \
        for (int batch_ = 0; batch_ < BATCHES; batch_++) { \
            before; \
            uint64_t begun_ns = now_ns(); \
            for (int i = 0; i < (count); i++) \
                call; \
            double ns = (double)(now_ns() - begun_ns) / (count); \
            after; \
            best_ns = batch_ == 0 || ns < best_ns ? ns : best_ns; \
        } \
        tell(name, best_ns); \
    } while (0)
#define NOTHING (void)0

static void time_launches(void)
{
    TIME("cuLaunchKernel, 100 behind a busy kernel", IN_A_ROW, launch(BUSY_NS), launch(1),
         wait_for_gpu());
    TIME("cuLaunchKernelEx, 100 behind a busy kernel", IN_A_ROW, launch(BUSY_NS), launch_ex(1),
         wait_for_gpu());
    TIME("launch + cuStreamSynchronize", IN_A_ROW, NOTHING, (launch(1), wait_for_gpu()), NOTHING);
}

static void time_graph(void)
{
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < NODES; i++)
        launch(1);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream)); /* the first one of a graph is longer */
    wait_for_gpu();
    TIME("cuGraphLaunch of 20 kernels, 20 in a row", 20, NOTHING, MUST(cuGraphLaunch(exec, stream)),
         wait_for_gpu());
}

static void time_events(void)
{
    CUevent made;
    CUstream stream_made;
    TIME(
        "cuEventCreate + cuEventDestroy", 1000, NOTHING,
        do {
            MUST(cuEventCreate(&made, CU_EVENT_DEFAULT));
            MUST(cuEventDestroy_v2(made));
        } while (0),
        NOTHING);
    TIME("cuEventRecord", 100, NOTHING, MUST(cuEventRecord(event, stream)), wait_for_gpu());
    TIME("cuEventQuery, done", 1000, NOTHING, MUST(cuEventQuery(event)), NOTHING);
    TIME("cuEventSynchronize, done", 1000, NOTHING, MUST(cuEventSynchronize(event)), NOTHING);
    TIME("cuStreamWaitEvent", 100, NOTHING, MUST(cuStreamWaitEvent(stream, event, 0)),
         wait_for_gpu());
    TIME("cuStreamQuery", 1000, NOTHING, MUST(cuStreamQuery(stream)), NOTHING);
    TIME("cuStreamSynchronize", 1000, NOTHING, wait_for_gpu(), NOTHING);
    TIME("cuCtxSynchronize", 1000, NOTHING, MUST(cuCtxSynchronize()), NOTHING);
    TIME(
        "cuStreamCreate + cuStreamDestroy", 100, NOTHING,
        do {
            MUST(cuStreamCreate(&stream_made, CU_STREAM_NON_BLOCKING));
            MUST(cuStreamDestroy_v2(stream_made));
        } while (0),
        NOTHING);
}

static void take_and_give(size_t bytes)
{
    CUdeviceptr piece;
    MUST(cuMemAlloc_v2(&piece, bytes));
    MUST(cuMemFree_v2(piece));
}

static void take_and_give_in_order(size_t bytes)
{
    CUdeviceptr piece;
    MUST(cuMemAllocAsync(&piece, bytes, stream));
    MUST(cuMemFreeAsync(piece, stream));
}

static void time_memory(void)
{
    CUdeviceptr kept;
    size_t free_bytes, total_bytes;
    void *pinned;
    TIME("cuMemGetInfo", 100, NOTHING, MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes)), NOTHING);
    TIME("cuMemAlloc + cuMemFree of 4 KiB", 100, NOTHING, take_and_give(4096), NOTHING);
    TIME("cuMemAlloc + cuMemFree of 2 MiB", 100, NOTHING, take_and_give(2 * MIB), NOTHING);
    TIME("cuMemAlloc + cuMemFree of 64 MiB", 20, NOTHING, take_and_give(64 * MIB), NOTHING);
    MUST(cuMemAlloc_v2(&kept, 4096));
    TIME("cuMemAlloc + cuMemFree of 4 KiB of a block that stays", 1000, NOTHING,
         take_and_give(4096), NOTHING);
    TIME("cuMemAllocAsync + cuMemFreeAsync of 1 MiB", 100, NOTHING, take_and_give_in_order(MIB),
         wait_for_gpu());
    MUST(cuMemHostAlloc(&pinned, 4096, 0));
    TIME("cuMemsetD8Async of 1 KiB", 100, NOTHING, MUST(cuMemsetD8Async(kept, 0, 1024, stream)),
         wait_for_gpu());
    TIME("cuMemcpyHtoDAsync of 4 KiB, pinned", 100, NOTHING,
         MUST(cuMemcpyHtoDAsync_v2(kept, pinned, 4096, stream)), wait_for_gpu());
}

static double between_ns(CUevent begin, CUevent end)
{
    float ms;
    MUST(cuEventSynchronize(end));
    MUST(cuEventElapsedTime(&ms, begin, end));
    return (double)ms * 1e6;
}

/* GPU time of kernels in a row, the host being far ahead, by events around them all. */
static double row_ns(CUevent begin, CUevent end, int with_events)
{
    double best_ns = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        launch(BUSY_NS);
        MUST(cuEventRecord(begin, stream));
        for (int i = 0; i < IN_A_ROW; i++) {
            launch(LONE_NS);
            if (with_events)
                MUST(cuEventRecord(event, stream));
        }
        MUST(cuEventRecord(end, stream));
        double ns = between_ns(begin, end) / IN_A_ROW;
        best_ns = batch == 0 || ns < best_ns ? ns : best_ns;
    }
    return best_ns;
}

static void time_gpu(void)
{
    CUevent begin, end;
    double pair_ns = 0;
    MUST(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    MUST(cuEventCreate(&end, CU_EVENT_DEFAULT));
    tell("GPU time of an event after a queued 10 us kernel",
         row_ns(begin, end, 1) - row_ns(begin, end, 0));
    for (int i = 0; i < IN_A_ROW; i++) {
        MUST(cuEventRecord(begin, stream));
        launch(LONE_NS);
        MUST(cuEventRecord(end, stream));
        double ns = between_ns(begin, end);
        pair_ns = i == 0 || ns < pair_ns ? ns : pair_ns;
    }
    tell("event pair around a lone 10 us kernel", pair_ns);
}

int main(int count, char **arguments)
{
    static const char word[] = "rounds_per_ms=";
    char *end = NULL;
    if (count == 2 && strncmp(arguments[1], word, sizeof word - 1) == 0)
        rounds_per_ms = strtoull(arguments[1] + sizeof word - 1, &end, 10);
    if (count > 1 && (rounds_per_ms == 0 || *end != '\0')) {
        fprintf(stderr, "arguments: must be none, or %sNUMBER from 1 on\n", word);
        return 2;
    }
    MUST(cuModuleGetFunction(&spin, client_load(ptx), "spin_ns"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
    launch(1); /* the very first one takes longer */
    wait_for_gpu();
    time_launches();
    time_graph();
    time_events();
    time_memory();
    time_gpu();
    return 0;
}
