/* A client in a slice that looks at its limit, as programs do: cuMemGetInfo every half millisecond.
 * At first and whenever the total differs from what it was it prints "<CLOCK_MONOTONIC in ns>
 * <total bytes>" on a line. Ends when its standard input does. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "vgpu/cuda_api.h"

#define MUST(call) \
    do { \
        int result_ = (call); \
        if (result_ != CUDA_SUCCESS) { \
            fprintf(stderr, "%s answered %d\n", #call, result_); \
            exit(1); \
        } \
    } while (0)

int main(void)
{
    CUcontext context;
    size_t free_bytes, total_bytes, before = 0;
    const struct timespec pause = {0, 500000};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    for (;;) {
        struct pollfd input = {0, POLLIN, 0};
        struct timespec now;
        if (poll(&input, 1, 0) != 0)
            return 0;
        MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
        if (total_bytes != before) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            printf("%lld %zu\n", now.tv_sec * 1000000000LL + now.tv_nsec, total_bytes);
            fflush(stdout);
            before = total_bytes;
        }
        nanosleep(&pause, NULL);
    }
}
