/* A program whose threads are busy in the driver and in NVML while it forks as often as it is told.
 * A child finds a driver that answers CUDA_ERROR_NOT_INITIALIZED, as documented, to cuInit and to
 * what a program calls to clean up, and an NVML that works; then it ends. One that hangs is killed
 * by its alarm. Told `first`, it forks instead while a thread is in its very first cuInit, where
 * the child may start a driver of its own if it comes early enough. Ends with 0 when all children
 * did well. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"
#include "vgpu/nvml_api.h"

#define LONGEST_SECONDS 10
#define WORKERS 3
#define LONGEST_START_US 400
#define MUST(call) \
    do { \
        int result_ = (call); \
        if (result_ != 0) { \
            fprintf(stderr, "line %d: %s answered %d\n", __LINE__, #call, result_); \
            _exit(1); \
        } \
    } while (0)
#define MUST_NOT_BE_STARTED(call) MUST((call) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1)

static CUcontext context;
static CUstream stream, captured;
static CUgraph graph;
static CUgraphExec exec;
static CUevent event;
static CUmemoryPool pool;
static CUdeviceptr kept;
static bool over;

static void called(void *argument)
{
    (void)argument;
}

static void *work(void *argument)
{
    MUST(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        CUdeviceptr address;
        MUST(cuMemAlloc_v2(&address, 1 << 20));
        MUST(cuMemsetD8Async(address, 1, 100, stream));
        MUST(cuEventRecord(event, stream));
        MUST(cuMemFree_v2(address));
        MUST(cuMemAllocFromPoolAsync(&address, 1 << 20, pool, stream));
        MUST(cuLaunchHostFunc(stream, called, NULL));
        MUST(cuMemFreeAsync(address, stream));
        MUST(cuEventSynchronize(event));
    }
    return argument;
}

static void *capture(void *argument)
{
    MUST(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        CUdeviceptr address;
        CUgraph made;
        CUgraphExec own;
        MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(cuMemAllocAsync(&address, 1 << 20, captured));
        MUST(cuMemFreeAsync(address, captured));
        MUST(cuStreamEndCapture(captured, &made));
        MUST(cuGraphInstantiateWithFlags(&own, made, 0));
        MUST(cuGraphLaunch(own, captured));
        MUST(cuGraphExecDestroy(own));
        MUST(cuGraphDestroy(made));
    }
    return argument;
}

static void ask_nvml(void)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    nvmlProcessInfo_t processes[16];
    unsigned int count = 16;
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &device));
    MUST(nvmlDeviceGetMemoryInfo(device, &memory));
    MUST(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes));
    MUST(count == 1 ? 0 : 1);
    MUST(nvmlShutdown());
}

static void *watch(void *argument)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        ask_nvml();
    return argument;
}

static void live_as_child(void)
{
    alarm(LONGEST_SECONDS);
    MUST_NOT_BE_STARTED(cuInit(0));
    MUST_NOT_BE_STARTED(cuMemFree_v2(kept));
    MUST_NOT_BE_STARTED(cuMemFreeAsync(kept, stream));
    MUST_NOT_BE_STARTED(cuStreamEndCapture(captured, NULL));
    MUST_NOT_BE_STARTED(cuGraphExecDestroy(exec));
    MUST_NOT_BE_STARTED(cuGraphDestroy(graph));
    MUST_NOT_BE_STARTED(cuEventDestroy_v2(event));
    MUST_NOT_BE_STARTED(cuStreamDestroy_v2(stream));
    MUST_NOT_BE_STARTED(cuMemPoolDestroy(pool));
    MUST_NOT_BE_STARTED(cuMemUnmap(kept, 2 << 20));
    MUST_NOT_BE_STARTED(cuCtxSynchronize());
    MUST_NOT_BE_STARTED(cuDevicePrimaryCtxRelease_v2(0));
    ask_nvml();
    exit(0); /* with all that libraries do at an end */
}

static void begin(pthread_t *threads)
{
    CUmemPoolProps wanted = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&event, 0));
    MUST(cuMemPoolCreate(&pool, &wanted));
    MUST(cuMemAlloc_v2(&kept, 1 << 20));
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(nvmlInit_v2());
    for (int i = 0; i < WORKERS; i++)
        MUST(pthread_create(&threads[i], NULL, work, NULL));
    MUST(pthread_create(&threads[WORKERS], NULL, capture, NULL));
    MUST(pthread_create(&threads[WORKERS + 1], NULL, watch, NULL));
}

static void fork_and_wait(void (*live)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0)
        live();
    MUST(child > 0 ? 0 : 1);
    MUST(waitpid(child, &status, 0) == child ? 0 : 1);
    MUST(status); /* of the child */
}

static void *start(void *argument)
{
    MUST(cuInit(0));
    MUST(nvmlInit_v2());
    return argument;
}

static void start_as_child(void)
{
    alarm(LONGEST_SECONDS);
    int result = cuInit(0);
    MUST(result == CUDA_ERROR_NOT_INITIALIZED ? 0 : result);
    MUST(nvmlInit_v2());
    exit(0);
}

/* In a process that has called nothing yet. */
static void fork_while_starting(void)
{
    pthread_t thread;
    alarm(2 * LONGEST_SECONDS);
    srand((unsigned int)getpid());
    MUST(pthread_create(&thread, NULL, start, NULL));
    usleep((useconds_t)(rand() % LONGEST_START_US));
    fork_and_wait(start_as_child);
    pthread_join(thread, NULL);
    exit(0);
}

int main(int count, char **arguments)
{
    pthread_t threads[WORKERS + 2];
    int forks = count > 1 ? atoi(arguments[1]) : 10;
    bool first = count > 2 && strcmp(arguments[2], "first") == 0;
    for (int i = 0; first && i < forks; i++)
        fork_and_wait(fork_while_starting);
    if (first)
        return 0;
    begin(threads);
    for (; forks > 0; forks--)
        fork_and_wait(live_as_child);
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    for (int i = 0; i < WORKERS + 2; i++)
        pthread_join(threads[i], NULL);
    MUST(cuCtxSynchronize());
    return 0;
}
