/* Threads that make random calls on the same streams, events, pool and executable graph, while each
 * captures on a stream that the others use too. Ends with 0 when all got through and the device has
 * as much free memory as before; with 1 when the driver answers what it should not. Every answer
 * that a capture of another thread explains is allowed: which calls meet one is chance. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "vgpu/cuda_api.h"
#include "vgpu/cuda_calls.h"
#include "vgpu/cuda_graph.h"

#define THREADS 8
#define STREAMS 4
#define EVENTS 6 /* the last two are for capturing streams: who waits for theirs joins them */
#define PLAIN_EVENTS 4
#define KEPT 8
#define LARGEST_BYTES (1 << 20)
#define LONGEST_NS 2000
#define MUST(call) check(#call, __LINE__, call, false)
#define TRY(call) check(#call, __LINE__, call, true)

static const char ptx[] = ".version 7.0\n.target sm_70\n"
                          ".visible .entry spin_ns(.param .u64 ns)\n{ret;}";

static CUcontext context;
static CUfunction spin;
static CUstream streams[STREAMS], capturing[THREADS];
static CUevent events[EVENTS];
static CUmemoryPool pool;
static CUgraphExec shared_exec;
/* The driver leaves it to the program to keep apart those who use one executable graph. */
static pthread_mutex_t exec_mutex = PTHREAD_MUTEX_INITIALIZER;
static long host_calls, host_called;
static long calls_a_thread = 2000;

struct piece {
    CUdeviceptr address;
    CUstream stream; /* of its allocation, use and end; NULL: not ordered by streams */
};

struct worker {
    unsigned int seed;
    int number;
    struct piece kept[KEPT];
};

/* Returns whether the call did what it was asked. */
static bool check(const char *call, int line, CUresult result, bool beside_captures)
{
    bool explained = (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                      result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) ||
                     result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_ILLEGAL_STATE;
    if (result != CUDA_SUCCESS && !(beside_captures && explained)) {
        fprintf(stderr, "line %d: %s answered %d\n", line, call, result);
        exit(1);
    }
    return result == CUDA_SUCCESS;
}

static unsigned int below(struct worker *worker, unsigned int limit)
{
    return (unsigned int)rand_r(&worker->seed) % limit;
}

static void called(void *argument)
{
    __atomic_add_fetch((long *)argument, 1, __ATOMIC_RELAXED);
}

static bool launch(struct worker *worker, CUstream stream)
{
    unsigned long long ns = below(worker, LONGEST_NS);
    void *params[] = {&ns};
    return TRY(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* In its own mode RELAXED a thread may allocate, trim and free during all captures. */
static void trim(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuMemPoolTrimTo(pool, 0));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
}

static void give(struct piece *piece)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    if (piece->stream)
        MUST(cuMemFreeAsync(piece->address, piece->stream));
    else
        MUST(cuMemFree_v2(piece->address));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    piece->address = 0;
}

static void take(struct worker *worker, struct piece *piece, CUstream stream)
{
    size_t bytes = 1 + below(worker, LARGEST_BYTES);
    unsigned int kind = below(worker, 3);
    piece->stream = kind ? stream : NULL;
    if (!(kind == 0   ? TRY(cuMemAlloc_v2(&piece->address, bytes))
          : kind == 1 ? TRY(cuMemAllocAsync(&piece->address, bytes, stream))
                      : TRY(cuMemAllocFromPoolAsync(&piece->address, bytes, pool, stream))))
        piece->address = 0;
    else if (kind != 0 && below(worker, 2))
        TRY(cuMemsetD8Async(piece->address, 1, bytes < 4096 ? bytes : 4096, stream));
}

static void use_event(struct worker *worker, CUstream stream, CUevent event)
{
    switch (below(worker, 6)) {
    case 0 ... 1:
        TRY(cuEventRecord(event, stream));
        break;
    case 2 ... 3:
        TRY(cuStreamWaitEvent(stream, event, 0));
        break;
    case 4:
        TRY(cuEventQuery(event));
        break;
    default:
        TRY(cuEventSynchronize(event));
    }
}

/* Not every capture ends well: the others make calls that spoil it, or join it. */
static void capture(struct worker *worker)
{
    CUstream stream = capturing[worker->number];
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUdeviceptr address;
    if (!TRY(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)below(worker, 3))))
        return; /* it has joined another capture */
    for (unsigned int left = below(worker, 4); left > 0; left--)
        launch(worker, stream);
    if (TRY(cuMemAllocAsync(&address, 1 << 20, stream)))
        TRY(cuMemFreeAsync(address, stream));
    if (!TRY(cuStreamEndCapture(stream, &graph)))
        return;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphLaunch(exec, streams[below(worker, STREAMS)]));
    MUST(cuGraphExecDestroy(exec));
}

static void use_rarely(struct worker *worker, CUstream stream)
{
    CUcontext other;
    CUevent event;
    CUstream another;
    switch (below(worker, 8)) {
    case 0:
        if (TRY(cuLaunchHostFunc(stream, called, &host_called)))
            __atomic_add_fetch(&host_calls, 1, __ATOMIC_RELAXED);
        break;
    case 1:
        TRY(cuStreamSynchronize(stream));
        break;
    case 2:
        MUST(cuCtxCreate_v2(&other, 0, 0));
        MUST(cuCtxDestroy_v2(other));
        MUST(cuCtxSetCurrent(context));
        break;
    case 3:
        MUST(cuStreamCreate(&another, below(worker, 2)));
        launch(worker, another);
        MUST(cuStreamDestroy_v2(another));
        break;
    case 4:
        MUST(cuEventCreate(&event, 0));
        TRY(cuEventRecord(event, stream));
        MUST(cuEventDestroy_v2(event));
        break;
    case 5:
        trim();
        break;
    case 6:
        MUST(cuDeviceGraphMemTrim(0));
        break;
    default:
        TRY(cuCtxSynchronize());
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    MUST(cuCtxSetCurrent(context));
    for (long left = calls_a_thread; left > 0; left--) {
        struct piece *piece = &worker->kept[below(worker, KEPT)];
        CUstream stream = streams[below(worker, STREAMS)];
        unsigned int which = below(worker, 32);
        if (which < 4 && piece->address)
            give(piece);
        else if (which < 4)
            take(worker, piece, stream);
        else if (which < 6)
            use_event(worker, capturing[below(worker, THREADS)],
                      events[PLAIN_EVENTS + below(worker, EVENTS - PLAIN_EVENTS)]);
        else if (which < 14)
            use_event(worker, stream, events[below(worker, PLAIN_EVENTS)]);
        else if (which == 14)
            capture(worker);
        else if (which < 18)
            use_rarely(worker, stream);
        else if (which < 20) {
            pthread_mutex_lock(&exec_mutex);
            TRY(cuGraphLaunch(shared_exec, stream));
            pthread_mutex_unlock(&exec_mutex);
        } else
            launch(worker, which == 20   ? capturing[below(worker, THREADS)]
                           : which == 21 ? NULL
                                         : stream);
    }
    for (int i = 0; i < KEPT; i++)
        if (worker->kept[i].address)
            give(&worker->kept[i]);
    return NULL;
}

static CUgraphExec make_exec(void)
{
    CUgraph graph;
    CUgraphNode taken, given;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS taking = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = LARGEST_BYTES};
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemAllocNode(&taken, graph, NULL, 0, &taking));
    MUST(cuGraphAddMemFreeNode(&given, graph, &taken, 1, taking.dptr));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    return exec;
}

static void begin(void)
{
    CUmodule module;
    CUmemPoolProps wanted = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&spin, module, "spin_ns"));
    for (int i = 0; i < STREAMS; i++)
        MUST(cuStreamCreate(&streams[i], i < 2 ? CU_STREAM_NON_BLOCKING : 0));
    for (int i = 0; i < THREADS; i++)
        MUST(cuStreamCreate(&capturing[i], i < 6 ? CU_STREAM_NON_BLOCKING : 0));
    for (int i = 0; i < EVENTS; i++)
        MUST(cuEventCreate(&events[i], 0));
    MUST(cuMemPoolCreate(&pool, &wanted));
    shared_exec = make_exec();
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    static struct worker workers[THREADS];
    size_t before, after, total;
    unsigned int seed = count > 2 ? (unsigned int)atol(arguments[2]) : 1;
    if (count > 1)
        calls_a_thread = atol(arguments[1]);
    begin();
    MUST(cuMemGetInfo_v2(&before, &total));
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.seed = seed * 1000 + (unsigned int)i, .number = i};
        if (pthread_create(&threads[i], NULL, work, &workers[i]))
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    MUST(cuCtxSynchronize());
    MUST(cuMemPoolDestroy(pool));
    MUST(cuGraphExecDestroy(shared_exec));
    MUST(cuDeviceGraphMemTrim(0));
    MUST(cuMemGetInfo_v2(&after, &total));
    if (after != before || host_called != host_calls) {
        fprintf(stderr, "%zu bytes lost, %ld of %ld host functions called\n", before - after,
                host_called, host_calls);
        return 1;
    }
    return 0;
}
