/* Each call is made first by a thread that has a cancellation pending, then by the main thread: the
 * first may die of it, but with nothing in its hands. Ends with 0; hangs where a lock was kept. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "vgpu/cuda_api.h"
#include "vgpu/cuda_calls.h"

static CUcontext context;
static CUdeviceptr address;

static CUresult begin(void)
{
    return cuInit(0);
}

static CUresult retain(void)
{
    return cuDevicePrimaryCtxRetain(&context, 0);
}

static CUresult make_stream(void)
{
    CUstream stream;
    return cuStreamCreate(&stream, 0);
}

static CUresult allocate(void)
{
    return cuMemAlloc_v2(&address, 4096);
}

static CUresult export(void)
{
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, address);
}

static void *cancelled(void *argument)
{
    CUresult (*const *call)(void) = argument;
    if (context)
        cuCtxSetCurrent(context);
    pthread_cancel(pthread_self());
    (*call)();
    pthread_testcancel();
    return argument; /* not reached */
}

int main(void)
{
    static CUresult (*const calls[])(void) = {begin, retain, make_stream, allocate, export};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        pthread_t thread;
        void *end;
        if (pthread_create(&thread, NULL, cancelled, (void *)&calls[i]) != 0 ||
            pthread_join(thread, &end) != 0 || end != PTHREAD_CANCELED)
            return 1;
        CUresult result = calls[i]();
        if (result != CUDA_SUCCESS) {
            fprintf(stderr, "call %zu answered %d\n", i, (int)result);
            return 1;
        }
        if (context)
            cuCtxSetCurrent(context);
    }
    return 0;
}
