/* Launches on GPU 0, as fast as they go, while other threads do the same on GPU 1. Prints how many
 * the driver took on GPU 0. Linked with libcuda. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spin_kernel.h"

#define OTHER_THREADS 2
#define KERNEL_NS 200
#define RUN_NS 2000000000
#define SECOND_NS 1000000000

struct gpu {
    CUcontext context;
    CUfunction spin;
};

static bool is_over;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

static struct gpu use(CUdevice device)
{
    struct gpu gpu;
    MUST(cuDevicePrimaryCtxRetain(&gpu.context, device));
    MUST(cuCtxSetCurrent(gpu.context));
    gpu.spin = load_spin_kernel();
    return gpu;
}

static void launch(const struct gpu *gpu, CUstream stream)
{
    unsigned long long ns = KERNEL_NS;
    void *parameters[] = {&ns};
    MUST(cuLaunchKernel(gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void *launch_beside(void *argument)
{
    struct gpu *gpu = argument;
    CUstream stream;
    MUST(cuCtxSetCurrent(gpu->context));
    MUST(cuStreamCreate(&stream, 0));
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE))
        launch(gpu, stream);
    return NULL;
}

int main(void)
{
    pthread_t threads[OTHER_THREADS];
    CUstream stream;
    long launches = 0;
    MUST(cuInit(0));
    struct gpu other = use(1);
    struct gpu own = use(0);
    MUST(cuStreamCreate(&stream, 0));
    for (int i = 0; i < OTHER_THREADS; i++)
        pthread_create(&threads[i], NULL, launch_beside, &other);
    for (int64_t end_ns = now_ns() + RUN_NS; now_ns() < end_ns; launches++)
        launch(&own, stream);
    MUST(cuStreamSynchronize(stream));
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    for (int i = 0; i < OTHER_THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", launches);
    return 0;
}
