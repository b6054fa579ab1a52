/* One thread waits for events that another one is just recording for the first time: it finds them
 * either not recorded, which is done, or recorded. It must not hang. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "spin_kernel.h"

static CUcontext context;
static CUevent shared;

static void *wait_for_each(void *argument)
{
    MUST(cuCtxSetCurrent(context));
    for (long left = *(long *)argument; left > 0; left--) {
        CUevent event;
        while (!(event = __atomic_load_n(&shared, __ATOMIC_ACQUIRE)))
            ;
        for (int i = 0; i < 20; i++)
            MUST(cuEventSynchronize(event));
        __atomic_store_n(&shared, NULL, __ATOMIC_RELEASE);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    long events = count > 1 ? atol(arguments[1]) : 100;
    pthread_t waiter;
    CUstream stream;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (pthread_create(&waiter, NULL, wait_for_each, &events))
        return 1;
    for (long left = events; left > 0; left--) {
        CUevent event;
        MUST(cuEventCreate(&event, 0));
        __atomic_store_n(&shared, event, __ATOMIC_RELEASE);
        MUST(cuEventRecord(event, stream));
        while (__atomic_load_n(&shared, __ATOMIC_ACQUIRE))
            ;
        MUST(cuEventDestroy_v2(event));
    }
    pthread_join(waiter, NULL);
    return 0;
}
