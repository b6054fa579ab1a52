/* A client in a slice that looks at its limit, as programs do: cuMemGetInfo every half millisecond.
 * At first and whenever the total differs from what it was it prints "<CLOCK_MONOTONIC in ns>
 * <total bytes>" on a line. Ends when its standard input does. */
#include <poll.h>

#include "client.h"

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
        if (poll(&input, 1, 0) != 0)
            return 0;
        MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
        if (total_bytes != before) {
            printf("%llu %zu\n", (unsigned long long)now_ns(), total_bytes);
            fflush(stdout);
            before = total_bytes;
        }
        nanosleep(&pause, NULL);
    }
}
