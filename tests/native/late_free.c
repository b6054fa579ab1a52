/* A program whose exit handler frees device memory, as static destructors of libraries do: NVML, which was loaded
 * later, has ended by then. `late_free native` calls NVML itself there; `late_free later` frees a second
 * later, when what the process holds is looked at again. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

#define PIECE_BYTES (16 << 20)

static CUcontext other;
static CUdeviceptr piece;
static bool is_later;
static int (*nvml_init)(void);

static void check(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "a call answered %d\n", (int)result);
    _Exit(1);
}

static void free_late(void)
{
    if (is_later)
        sleep(1);
    check(cuCtxDestroy_v2(other)); /* what is used now is asked for again */
    check(cuMemFree_v2(piece));
    check(cuMemAlloc_v2(&piece, PIECE_BYTES));
    check(cuDevicePrimaryCtxRetain(&other, 0));
    if (nvml_init != NULL)
        nvml_init();
    puts("freed");
}

int main(int count, char **words)
{
    CUcontext context;
    atexit(free_late);
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxCreate_v2(&other, 0, 0));
    check(cuCtxSetCurrent(context));
    check(cuMemAlloc_v2(&piece, PIECE_BYTES));
    is_later = count > 1 && strcmp(words[1], "later") == 0;
    if (count > 1 && !is_later) {
        nvml_init = (int (*)(void))dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), "nvmlInit_v2");
        nvml_init();
    }
    return 0;
}
