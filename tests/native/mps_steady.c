/* A client that launches one kernel after the other until its standard input ends. Says the
 * CUresult of its start; then, for each byte it reads, how many launches it has completed and the
 * CUresult of the latest one. Linked with libcuda. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

#define KERNEL_NS 500000
#define PAUSE_MS 5 /* several of these share the processors of a small machine */

static const char ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry spin_ns(.param .u64 ns)\n{ret;}";

static CUresult start(CUfunction *spin)
{
    CUcontext context;
    CUmodule module;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS)
        result = cuModuleLoadData(&module, ptx);
    return result == CUDA_SUCCESS ? cuModuleGetFunction(spin, module, "spin_ns") : result;
}

int main(void)
{
    CUfunction spin;
    CUresult result = start(&spin);
    struct pollfd told = {.fd = STDIN_FILENO, .events = POLLIN};
    unsigned long launches = 0;
    printf("%d\n", result);
    fflush(stdout);
    for (;;) {
        unsigned long long ns = KERNEL_NS;
        void *parameters[] = {&ns};
        char byte;
        if (result == CUDA_SUCCESS)
            result = cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
        if (result == CUDA_SUCCESS)
            result = cuCtxSynchronize();
        launches += result == CUDA_SUCCESS;
        if (poll(&told, 1, PAUSE_MS) <= 0)
            continue;
        if (read(STDIN_FILENO, &byte, 1) != 1)
            return 0;
        printf("%lu %d\n", launches, result);
        fflush(stdout);
    }
}
