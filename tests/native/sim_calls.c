/* Two threads that put host functions onto one stream, as fast as they can. Ends with 0 when all of
 * them were called, each thread's in order; hangs when a call was lost. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "vgpu/cuda_api.h"
#include "vgpu/cuda_calls.h"

#define THREADS 2
#define CALLS 20000

static CUcontext context;
static CUstream stream;
static long called[THREADS], wrong;

struct note {
    int thread;
    long number;
};
static struct note notes[THREADS][CALLS];

static void call(void *argument)
{
    const struct note *note = argument;
    if (called[note->thread]++ != note->number)
        wrong++;
}

static void must(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "a call answered %d\n", (int)result);
        exit(1);
    }
}

static void *launch(void *argument)
{
    struct note *own = argument;
    must(cuCtxSetCurrent(context));
    for (long i = 0; i < CALLS; i++)
        must(cuLaunchHostFunc(stream, call, &own[i]));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < THREADS; i++)
        for (long j = 0; j < CALLS; j++)
            notes[i][j] = (struct note){i, j};
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, launch, notes[i]) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    must(cuStreamSynchronize(stream));
    return called[0] == CALLS && called[1] == CALLS && !wrong ? 0 : 2;
}
