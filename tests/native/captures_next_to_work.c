/* One thread begins and ends captures in mode GLOBAL, while another one works on a stream of its own. Arguments: how
 * many captures, and what is done next to them: launches; frees in the stream's order; or launches and, before each
 * capture, one on the default stream, which cannot be used during it. Prints how many captures failed, and how many
 * graphs hold something else than the program's kernel. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "spin_kernel.h"

#define LAUNCHES_A_WAIT 4
#define PIECES 512
#define PIECE_BYTES (2u << 20)
#define MOST_PAUSE_NS 50000
#define PAUSE_STEP_NS 7919 /* a prime, so that no two pauses in a row are alike */

static CUcontext context;
static CUfunction spin;
static uint64_t kernel_ns = 5000;
static CUdeviceptr pieces[PIECES];
static bool has_frees;
static bool is_over; /* atomic */

static CUresult launch(CUstream stream)
{
    void *arguments[] = {&kernel_ns};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static void *work(void *nothing)
{
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); i++) {
        MUST(launch(stream));
        if (has_frees && i < PIECES)
            MUST(cuMemFreeAsync(pieces[i], stream));
        if (i % LAUNCHES_A_WAIT == 0)
            MUST(cuStreamSynchronize(stream));
    }
    MUST(cuStreamSynchronize(stream));
    return nothing;
}

static void pass_time(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* True where the graph holds the kernel and nothing else. */
static bool is_ours(CUgraph graph)
{
    size_t nodes = 0;
    MUST(cuGraphGetNodes(graph, NULL, &nodes));
    MUST(cuGraphDestroy(graph));
    return nodes == 1;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CUstream stream;
    int failed = 0, strange = 0;
    if (argc != 3)
        return 2;
    has_frees = strcmp(argv[2], "frees") == 0;
    bool has_default = strcmp(argv[2], "default stream") == 0;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, has_default ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    spin = load_spin_kernel();
    for (int i = 0; has_frees && i < PIECES; i++) /* which is not allowed next to a capture */
        MUST(cuMemAlloc_v2(&pieces[i], PIECE_BYTES));
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return 3;
    for (int i = 0; i < atoi(argv[1]); i++) {
        CUgraph graph = NULL;
        pass_time((long)i * PAUSE_STEP_NS % MOST_PAUSE_NS);
        if (has_default)
            MUST(launch(NULL));
        MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        launch(stream); /* refused where the capture is spoilt already */
        if (cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS)
            failed++;
        else
            strange += !is_ours(graph);
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    printf("%d %d\n", failed, strange);
    return 0;
}
