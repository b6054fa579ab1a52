/* A client that makes as many calls as it is told, on as many threads, a little of everything:
 * memory of every kind, copies, launches on several streams, graphs, captures, events, waits,
 * contexts, modules. Gives back what it has and ends with 0, or with 1 when the driver answers
 * anything that it should not. */
#include <pthread.h>
#include <unistd.h>

#include "sim_churn.h"

#define KEPT 64
#define MOST_THREADS 16
#define SECOND_SMS 16

const char churn_ptx[] = ".version 7.0\n.target sm_70\n"
                         ".visible .global .align 4 .b8 table[70000];\n"
                         ".visible .entry spin_ns(.param .u64 ns)\n{ret;}";

static long calls = 1000; /* of each thread */

static void called(void *argument)
{
    __atomic_add_fetch((long *)argument, 1, __ATOMIC_RELAXED);
}

static void use_second_context(struct churn *churn)
{
    CUcontext second;
    CUdeviceptr address;
    MUST(cuCtxCreate_v2(&second, 0, 0));
    MUST(cuMemAlloc_v2(&address, 1 << 20)); /* ends with its context */
    MUST(cuCtxDestroy_v2(second));
    MUST(cuCtxSetCurrent(churn->context));
}

static void use_green_context(void)
{
    CUdevResource all, some, rest;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream stream;
    unsigned int count = 1;
    MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    MUST(cuDevSmResourceSplitByCount(&some, &count, &all, &rest, 0, SECOND_SMS));
    MUST(cuDevResourceGenerateDesc(&description, &some, 1));
    MUST(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuGreenCtxDestroy(green));
}

static void use_module(void)
{
    CUmodule module;
    CUdeviceptr table;
    size_t bytes;
    MUST(cuModuleLoadData(&module, churn_ptx));
    MUST(cuModuleGetGlobal_v2(&table, &bytes, module, "table"));
    MUST(cuMemsetD8Async(table, 1, bytes, NULL));
    MUST(cuModuleUnload(module));
}

static void use_event(struct churn *churn, CUstream stream)
{
    unsigned int which = below(churn, 4);
    int result;
    if (which == 0)
        MUST(cuStreamWaitEvent(stream, churn->event, 0));
    else if (which == 1)
        MUST(cuEventRecord(churn->event, stream));
    else if ((result = cuEventQuery(churn->event)) != CUDA_ERROR_NOT_READY)
        MUST(result);
}

static void launch(struct churn *churn, CUstream stream)
{
    unsigned long long ns = below(churn, LONGEST_NS);
    void *params[] = {&ns};
    MUST(cuLaunchKernel(churn->spin, 1, 1, 1, 1, 1, 1, 0, below(churn, 4) ? stream : NULL, params,
                        NULL));
}

/* What is rare, so that most calls are still made in passing. */
static void call_rarely(struct churn *churn, struct graphs *graphs, CUstream stream)
{
    static long host_calls; /* counted on threads of the driver; nobody reads it */
    switch (below(churn, 10)) {
    case 0:
        use_second_context(churn);
        break;
    case 1:
        use_green_context();
        break;
    case 2:
        use_module();
        break;
    case 3:
        MUST(cuLaunchHostFunc(churn->streams[0], called, &host_calls));
        break;
    case 4:
        graphs_capture(churn, graphs);
        break;
    case 5:
        graphs_update(churn, graphs);
        break;
    case 6 ... 7:
        memory_set_pool(churn);
        break;
    default:
        MUST(cuStreamSynchronize(stream));
    }
}

static void begin(struct churn *churn)
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&churn->context, 0));
    MUST(cuCtxSetCurrent(churn->context));
    MUST(cuModuleLoadData(&churn->module, churn_ptx));
    MUST(cuModuleGetFunction(&churn->spin, churn->module, "spin_ns"));
    for (int i = 0; i < STREAMS; i++)
        MUST(cuStreamCreate(&churn->streams[i], i ? CU_STREAM_NON_BLOCKING : 0));
    MUST(cuEventCreate(&churn->event, 0));
}

static void *make_calls(void *argument)
{
    struct churn churn = *(const struct churn *)argument;
    struct graphs graphs;
    struct piece kept[KEPT] = {0};
    begin(&churn);
    memory_begin(&churn);
    graphs_begin(&churn, &graphs);
    for (long left = calls; left > 0; left--) {
        struct piece *piece = &kept[below(&churn, KEPT)];
        CUstream stream = churn.streams[below(&churn, STREAMS)];
        unsigned int which = below(&churn, 32);
        if (which < 6 && piece->kind)
            memory_give(piece);
        else if (which < 6)
            memory_take(&churn, piece, stream);
        else if (which < 10 && piece->kind)
            memory_touch(&churn, piece);
        else if (which < 16)
            use_event(&churn, stream);
        else if (which < 18)
            graphs_launch(&churn, &graphs, stream);
        else if (which > 18)
            launch(&churn, stream);
        else if (below(&churn, 50) == 0)
            call_rarely(&churn, &graphs, stream);
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i].kind)
            memory_give(&kept[i]);
    graphs_end(&graphs);
    memory_end(&churn);
    MUST(cuCtxSynchronize());
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    return NULL;
}

int main(int count, char **arguments)
{
    long threads = count > 2 ? atol(arguments[2]) : 1;
    pthread_t others[MOST_THREADS];
    struct churn first = {.seed = (unsigned int)getpid(), .alone = threads == 1}, each = first;
    if (count > 1)
        calls = atol(arguments[1]);
    for (long i = 1; i < threads && i < MOST_THREADS; i++) {
        struct churn *other = malloc(sizeof *other); /* for as long as the process */
        each.seed++;
        *other = each;
        if (pthread_create(&others[i], NULL, make_calls, other))
            return 1;
    }
    make_calls(&first);
    for (long i = 1; i < threads && i < MOST_THREADS; i++)
        pthread_join(others[i], NULL);
    return 0;
}
