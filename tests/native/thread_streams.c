/* Threads that launch on a stream of their own each: kernel time in us, threads, seconds, and after how many
 * launches each waits for its stream (0: not before the end). Prints the percentage of the time that their
 * kernels took. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spin_kernel.h"

#define MOST_THREADS 64
#define BLOCKS 1056 /* a whole H100, four times */
static CUcontext context;
static CUfunction spin;
static uint64_t kernel_ns;
static int launches_a_wait;
static int64_t end_ns;
static int64_t launches; /* atomic */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void *launch(void *nothing)
{
    CUstream stream;
    void *arguments[] = {&kernel_ns};
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 1; now_ns() < end_ns; i++) {
        MUST(cuLaunchKernel(spin, BLOCKS, 1, 1, 1024, 1, 1, 0, stream, arguments, NULL));
        __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
        if (launches_a_wait && i % launches_a_wait == 0)
            MUST(cuStreamSynchronize(stream));
    }
    MUST(cuStreamSynchronize(stream));
    return nothing;
}

int main(int argc, char **argv)
{
    CUdevice device;
    pthread_t threads[MOST_THREADS];
    if (argc != 5 || atoi(argv[2]) > MOST_THREADS)
        return 2;
    kernel_ns = strtoull(argv[1], NULL, 10) * 1000;
    launches_a_wait = atoi(argv[4]);
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    spin = load_spin_kernel();
    int64_t begun_ns = now_ns();
    end_ns = begun_ns + (int64_t)(atof(argv[3]) * 1e9);
    for (int i = 0; i < atoi(argv[2]); i++)
        if (pthread_create(&threads[i], NULL, launch, NULL) != 0)
            return 3;
    for (int i = 0; i < atoi(argv[2]); i++)
        pthread_join(threads[i], NULL);
    printf("%.3f\n", 100.0 * (double)launches * (double)kernel_ns / (double)(now_ns() - begun_ns));
    return 0;
}
