/* Threads for programs under a slice, that a Python program loads: several that set the limits of
 * one context, and several that allocate and free while it does something else. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "vgpu/cuda_api.h"

#define MOST_THREADS 8
#define MIB ((size_t)1 << 20)
#define PIECE_BYTES (16 * MIB)
#define MOST_LIMIT_MIB 700

static CUcontext shared_context;
static int set_count;
static bool is_stopped;
static pthread_t threads[MOST_THREADS];
static int thread_count;

static void start(CUcontext context, int count, void *(*run)(void *))
{
    shared_context = context;
    thread_count = count;
    for (intptr_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            abort();
}

static void join(void)
{
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
}

static void *set_some(void *argument)
{
    unsigned int dice = (unsigned int)(intptr_t)argument + 1;
    cuCtxSetCurrent(shared_context);
    for (int i = 0; i < set_count; i++)
        cuCtxSetLimit(rand_r(&dice) % 2 ? CU_LIMIT_MALLOC_HEAP_SIZE : CU_LIMIT_PRINTF_FIFO_SIZE,
                      (size_t)(1 + rand_r(&dice) % MOST_LIMIT_MIB) * MIB);
    return NULL;
}

void set_limits(CUcontext context, int count, int sets)
{
    set_count = sets;
    start(context, count, set_some);
    join();
}

static void *churn(void *argument)
{
    CUdeviceptr address;
    (void)argument;
    cuCtxSetCurrent(shared_context);
    while (!__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE))
        if (cuMemAlloc_v2(&address, PIECE_BYTES) == CUDA_SUCCESS)
            cuMemFree_v2(address);
    return NULL;
}

void start_churn(CUcontext context, int count)
{
    start(context, count, churn);
}

void stop_churn(void)
{
    __atomic_store_n(&is_stopped, true, __ATOMIC_RELEASE);
    join();
}
