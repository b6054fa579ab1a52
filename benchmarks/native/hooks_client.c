/*
 * Calls one driver entry point over and over and prints what a call took, in nanoseconds, one line
 * per batch:   hooks_client CASE WAY CALLS BATCHES
 *
 *     CASE  launch | alloc | async       (one call, or one allocation with its free)
 *           context                      (cuInit and the first context, once: CALLS and BATCHES
 *                                         are not looked at; begins when stdin ends, so that many
 *                                         that have said "ready" can begin at one moment)
 *     WAY   elf | getproc                (linked, or resolved through cuGetProcAddress_v2 as
 *                                         cudart does)
 *
 * A second thread waits meanwhile: with one thread only, the C library leaves out the lock prefix of
 * its mutexes. The loops of both ways call through a pointer read from memory, so that they differ only in what
 * the pointer leads to. Built against our own declarations; runs on any driver.
 */
#include "vgpu/cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API_VERSION 12000 /* the first one where cuGetProcAddress_v2 exists */
#define PIECE_BYTES ((size_t)1 << 20)
#define WARM_UP_CALLS 10000 /* a cap has learned by then what a launch costs */

static const char kernel_text[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n";

struct calls {
    __typeof__(&cuLaunchKernel) launch;
    __typeof__(&cuMemAlloc_v2) alloc;
    __typeof__(&cuMemFree_v2) free;
    __typeof__(&cuMemAllocAsync) alloc_async;
    __typeof__(&cuMemFreeAsync) free_async;
};

static void require(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "hooks_client: %s answered %d\n", what, (int)result);
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *resolve(const char *name)
{
    __typeof__(&cuGetProcAddress_v2) get = NULL;
    CUdriverProcAddressQueryResult status;
    void *function = NULL;

    *(void **)&get = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
    if (!get) {
        fprintf(stderr, "hooks_client: no cuGetProcAddress_v2\n");
        exit(1);
    }
    require(get(name, &function, API_VERSION, 0, &status), name);
    return function;
}

static struct calls find_calls(int through_getproc)
{
    struct calls calls = {cuLaunchKernel, cuMemAlloc_v2, cuMemFree_v2, cuMemAllocAsync,
                          cuMemFreeAsync};

    if (through_getproc) {
        *(void **)&calls.launch = resolve("cuLaunchKernel");
        *(void **)&calls.alloc = resolve("cuMemAlloc");
        *(void **)&calls.free = resolve("cuMemFree");
        *(void **)&calls.alloc_async = resolve("cuMemAllocAsync");
        *(void **)&calls.free_async = resolve("cuMemFreeAsync");
    }
    return calls;
}

static void launch_many(const volatile struct calls *calls, CUfunction function, CUstream stream,
                        long count)
{
    for (long i = 0; i < count; i++)
        if (calls->launch(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL) != CUDA_SUCCESS)
            require(CUDA_ERROR_LAUNCH_FAILED, "cuLaunchKernel");
}

static void allocate_many(const volatile struct calls *calls, long count)
{
    for (long i = 0; i < count; i++) {
        CUdeviceptr address;

        require(calls->alloc(&address, PIECE_BYTES), "cuMemAlloc");
        require(calls->free(address), "cuMemFree");
    }
}

static void allocate_many_async(const volatile struct calls *calls, CUstream stream, long count)
{
    for (long i = 0; i < count; i++) {
        CUdeviceptr address;

        require(calls->alloc_async(&address, PIECE_BYTES, stream), "cuMemAllocAsync");
        require(calls->free_async(address, stream), "cuMemFreeAsync");
    }
}

static void *wait_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void await_begin(void)
{
    char byte;

    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    pthread_t waiter;
    struct calls calls;

    if (argc != 5) {
        fprintf(stderr, "usage: hooks_client CASE WAY CALLS BATCHES\n");
        return 2;
    }
    const char *name = argv[1];
    long count = atol(argv[3]);
    long batches = atol(argv[4]);

    if (strcmp(name, "context") == 0)
        await_begin();
    uint64_t begun_ns = now_ns();
    require(cuInit(0), "cuInit");
    require(cuDeviceGet(&device, 0), "cuDeviceGet");
    require(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    if (strcmp(name, "context") == 0) {
        printf("%.4f\n", (double)(now_ns() - begun_ns));
        return 0;
    }
    require(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    if (pthread_create(&waiter, NULL, wait_for_ever, NULL) != 0) {
        fprintf(stderr, "hooks_client: no second thread\n");
        return 1;
    }
    require(cuModuleLoadData(&module, kernel_text), "cuModuleLoadData");
    require(cuModuleGetFunction(&function, module, "empty"), "cuModuleGetFunction");
    require(cuStreamCreate(&stream, 0), "cuStreamCreate");
    calls = find_calls(strcmp(argv[2], "getproc") == 0);

    for (long batch = -1; batch < batches; batch++) {
        long calls_now = batch < 0 ? WARM_UP_CALLS : count;
        uint64_t start = now_ns();

        if (strcmp(name, "launch") == 0)
            launch_many(&calls, function, stream, calls_now);
        else if (strcmp(name, "alloc") == 0)
            allocate_many(&calls, calls_now);
        else
            allocate_many_async(&calls, stream, calls_now);
        if (batch >= 0)
            printf("%.4f\n", (double)(now_ns() - start) / (double)calls_now);
    }
    return 0;
}
