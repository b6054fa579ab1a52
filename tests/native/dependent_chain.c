/* Steps of dependent launches, as of a decoder, with a wait after each: kernel time in us, launches a step,
 * the host's pause between steps in us, seconds, which launches are not dependent (each n-th; 0: none, 1: all), and
 * after how many an event is recorded (0: never). Prints the launches. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "spin_kernel.h"
#include "vgpu/cuda_calls.h"

#define BLOCKS 1056 /* a whole H100, four times */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void launch(CUfunction spin, CUstream stream, uint64_t kernel_ns, bool is_dependent)
{
    void *arguments[] = {&kernel_ns};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value = {.programmaticStreamSerializationAllowed = 1}};
    CUlaunchConfig config = {.gridDimX = BLOCKS,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1024,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = is_dependent};
    MUST(cuLaunchKernelEx(&config, spin, arguments, NULL));
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUevent event;
    if (argc != 7)
        return 2;
    uint64_t kernel_ns = (uint64_t)(atof(argv[1]) * 1e3);
    int launches_a_step = atoi(argv[2]), plain_each = atoi(argv[5]), event_each = atoi(argv[6]);
    struct timespec pause = {.tv_nsec = atol(argv[3]) * 1000};
    long launches = 0;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CUfunction spin = load_spin_kernel();
    int64_t end_ns = now_ns() + (int64_t)(atof(argv[4]) * 1e9);
    while (now_ns() < end_ns) {
        for (int i = 0; i < launches_a_step; i++) {
            launches++;
            launch(spin, stream, kernel_ns, plain_each == 0 || launches % plain_each != 0);
            if (event_each && launches % event_each == 0)
                MUST(cuEventRecord(event, stream));
        }
        MUST(cuStreamSynchronize(stream));
        if (pause.tv_nsec)
            nanosleep(&pause, NULL);
    }
    printf("%ld\n", launches);
    return 0;
}
