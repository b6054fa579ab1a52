/* Prints what driver calls cost the caller on the simulated GPU, in nanoseconds: the median over
 * rounds of a launch into a queue with room, of cuMemAlloc+cuMemFree and of an asynchronous pair.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "vgpu/cuda_api.h"

#define ROUNDS 41
#define LAUNCHES 1000
#define PAIRS 2000
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
    double launch[ROUNDS], pair[ROUNDS], async[ROUNDS];
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&spin, module, "spin_ns"));
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
    }
    printf("%.0f %.0f %.0f\n", median(launch), median(pair), median(async));
    return 0;
}
