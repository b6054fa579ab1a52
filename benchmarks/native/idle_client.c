/* A client in a slice that has some memory, has worked, and then does nothing, as most programs at most
 * moments: prints "ready" and ends when its standard input does. */
#include "client.h"

#define HELD_BYTES (64u << 20)

int main(void)
{
    CUcontext context;
    CUdeviceptr held;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&held, HELD_BYTES));
    MUST(cuMemsetD8_v2(held, 1, HELD_BYTES));
    MUST(cuCtxSynchronize());
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
