/* Two threads that launch and allocate on a stream each of one green context, which is current to the first of them:
 * kernel time in us, seconds. Prints the percentage of the time that their kernels took. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "spin_kernel.h"
#include "vgpu/cuda_calls.h"

#define THREADS 2
#define BLOCKS 1056 /* a whole H100, four times */
#define PIECE_BYTES 4096
#define SMS 16

static CUcontext contexts[THREADS]; /* that each has current */
static CUgreenCtx green;
static CUfunction spin;
static uint64_t kernel_ns;
static int64_t end_ns;
static int64_t launches; /* atomic */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void *launch(void *context)
{
    CUstream stream;
    void *arguments[] = {&kernel_ns};
    MUST(cuCtxSetCurrent(*(CUcontext *)context));
    MUST(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    while (now_ns() < end_ns) {
        CUdeviceptr piece;
        MUST(cuMemAllocAsync(&piece, PIECE_BYTES, stream));
        MUST(cuLaunchKernel(spin, BLOCKS, 1, 1, 1024, 1, 1, 0, stream, arguments, NULL));
        MUST(cuMemFreeAsync(piece, stream));
        __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
    }
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy_v2(stream));
    return NULL;
}

static void make_green(CUdevice device)
{
    CUdevResource all, some;
    CUdevResourceDesc description;
    unsigned int groups = 1;
    MUST(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    MUST(cuDevSmResourceSplitByCount(&some, &groups, &all, NULL, 0, SMS));
    MUST(cuDevResourceGenerateDesc(&description, &some, 1));
    MUST(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(cuCtxFromGreenCtx(&contexts[0], green));
}

int main(int argc, char **argv)
{
    CUdevice device;
    pthread_t threads[THREADS];
    if (argc != 3)
        return 2;
    kernel_ns = strtoull(argv[1], NULL, 10) * 1000;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&contexts[1], device));
    MUST(cuCtxSetCurrent(contexts[1]));
    spin = load_spin_kernel();
    make_green(device);
    int64_t begun_ns = now_ns();
    end_ns = begun_ns + (int64_t)(atof(argv[2]) * 1e9);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, launch, &contexts[i]) != 0)
            return 3;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%.3f\n", 100.0 * (double)launches * (double)kernel_ns / (double)(now_ns() - begun_ns));
    MUST(cuGreenCtxDestroy(green));
    return 0;
}
