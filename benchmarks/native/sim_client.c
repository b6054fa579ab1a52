/* Prints what driver calls cost the caller on the simulated GPU, one "word nanoseconds" a line,
 * medians over rounds: `launch` (into a queue with room), `alloc` (cuMemAlloc + cuMemFree of as
 * many bytes as the first argument says), `async` (the same, stream-ordered), and `late`: how long
 * after the end of its kernel of a millisecond a wait returns. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "vgpu/cuda_api.h"

#define ROUNDS 41
#define LAUNCHES 1000
#define PAIRS 2000
#define WAITS 5
#define WAITED_NS 1000000
#define MUST(call) \
    do { \
        int result_ = (call); \
        if (result_ != CUDA_SUCCESS) { \
            fprintf(stderr, "%s answered %d\n", #call, result_); \
            exit(1); \
        } \
    } while (0)

static const char ptx[] = ".version 7.0\n.target sm_70\n"
                          ".visible .entry spin_ns(.param .u64 ns)\n{ret;}";

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(double *samples)
{
    qsort(samples, ROUNDS, sizeof *samples, compare);
    return samples[ROUNDS / 2];
}

int main(int count, char **arguments)
{
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    CUdeviceptr address;
    unsigned long long ns = 1;
    void *params[] = {&ns};
    size_t bytes = count > 1 ? strtoull(arguments[1], NULL, 10) : 1 << 20;
    double launch[ROUNDS], pair[ROUNDS], async[ROUNDS], late[ROUNDS];
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&spin, module, "spin_ns"));
    if (bytes == 0) /* only to have been there */
        return 0;
    for (int round = 0; round < ROUNDS; round++) {
        double begun = now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        launch[round] = (now_ns() - begun) / LAUNCHES;
        MUST(cuCtxSynchronize());
        begun = now_ns();
        for (int i = 0; i < PAIRS; i++) {
            MUST(cuMemAlloc_v2(&address, bytes));
            MUST(cuMemFree_v2(address));
        }
        pair[round] = (now_ns() - begun) / PAIRS;
        begun = now_ns();
        for (int i = 0; i < PAIRS; i++) {
            MUST(cuMemAllocAsync(&address, bytes, NULL));
            MUST(cuMemFreeAsync(address, NULL));
        }
        async[round] = (now_ns() - begun) / PAIRS;
        ns = WAITED_NS;
        begun = now_ns();
        for (int i = 0; i < WAITS; i++) {
            MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
            MUST(cuCtxSynchronize());
        }
        late[round] = (now_ns() - begun) / WAITS - WAITED_NS;
        ns = 1;
    }
    printf("launch %.1f\nalloc %.1f\nasync %.1f\nlate %.1f\n", median(launch), median(pair),
           median(async), median(late));
    return 0;
}
