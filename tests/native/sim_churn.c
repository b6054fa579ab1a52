/* A client that does a little of everything until it is killed: memory, launches, events, waits.
 * Ends with 1 when the driver answers anything that it should not. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

#define KEPT 64
#define LARGEST_BYTES (8 << 20)
#define LONGEST_NS 20000
#define MUST(call) \
    do { \
        int result_ = (call); \
        if (result_ != CUDA_SUCCESS) { \
            fprintf(stderr, "%s answered %d\n", #call, result_); \
            exit(1); \
        } \
    } while (0)

static const char ptx[] = ".version 7.0\n.target sm_70\n"
                          ".visible .entry spin_ns(.param .u64 ns)\n{ret;}";

int main(void)
{
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    CUstream stream;
    CUevent event;
    CUdeviceptr kept[KEPT] = {0};
    unsigned int seed = (unsigned int)getpid();
    unsigned long long ns;
    void *params[] = {&ns};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&spin, module, "spin_ns"));
    MUST(cuStreamCreate(&stream, 0));
    MUST(cuEventCreate(&event, 0));
    for (;;) {
        int at = rand_r(&seed) % KEPT, result;
        switch (rand_r(&seed) % 8) {
        case 0:
        case 1:
            if (kept[at]) {
                MUST(cuMemFree_v2(kept[at]));
                kept[at] = 0;
            } else {
                MUST(cuMemAlloc_v2(&kept[at], 1 + (size_t)(rand_r(&seed) % LARGEST_BYTES)));
            }
            break;
        case 2:
        case 3:
        case 4:
            ns = (unsigned long long)(rand_r(&seed) % LONGEST_NS);
            MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
            break;
        case 5:
            MUST(cuEventRecord(event, stream));
            break;
        case 6:
            result = cuEventQuery(event);
            if (result != CUDA_ERROR_NOT_READY)
                MUST(result);
            break;
        case 7:
            if (rand_r(&seed) % 50 == 0)
                MUST(cuStreamSynchronize(stream));
        }
    }
}
