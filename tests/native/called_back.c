/* `called_back MAKES TOOL`: a program that makes a context, and a tool in it that calling_driver.c calls back within
 * that call. It says "look NAME" and waits for a line where it is to be looked at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgpu/cuda_api.h"

#define STACK_BYTES 8192
#define PIECE_BYTES (64 << 20)

static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                            ".visible .entry loc()\n{\n.local .align 8 .b8 depot[4096];\nret;\n}\n";
static const char *tool;
static int calls;

static void check(CUresult result, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "line %d: a call answered %d\n", line, (int)result);
    _Exit(1);
}
#define CHECK(call) check((call), __LINE__)

static void launch(void)
{
    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&function, module, "loc"));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
}

void called_back(CUcontext context)
{
    CUcontext other;
    CUdeviceptr piece;
    calls++;
    CHECK(cuCtxPushCurrent_v2(context));
    if (strcmp(tool, "launches") == 0)
        launch();
    if (strcmp(tool, "allocates") == 0)
        CHECK(cuMemAlloc_v2(&piece, PIECE_BYTES));
    if (strcmp(tool, "limits") == 0)
        CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, STACK_BYTES));
    if (strcmp(tool, "retains") == 0)
        CHECK(cuDevicePrimaryCtxRetain(&other, 0));
    if (strcmp(tool, "borrows") == 0) {
        CHECK(cuDevicePrimaryCtxRetain(&other, 0));
        CHECK(cuDevicePrimaryCtxRelease_v2(0));
    }
    if (strcmp(tool, "creates") == 0) {
        CHECK(cuCtxCreate_v2(&other, 0, 0));
        CHECK(cuCtxPopCurrent_v2(&other));
    }
    CHECK(cuCtxPopCurrent_v2(&context));
}

static void look(const char *name)
{
    printf("look %s\n", name);
    fflush(stdout);
    if (getchar() != '\n')
        exit(1);
}

int main(int count, char **words)
{
    CUcontext context;
    if (count != 3)
        return 2;
    tool = words[2];
    CHECK(cuInit(0));
    if (strcmp(words[1], "primary") == 0)
        CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    else
        CHECK(cuCtxCreate_v2(&context, 0, 0));
    look("made");
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2 * STACK_BYTES));
    look("limited");
    if (strcmp(words[1], "primary") == 0)
        CHECK(cuDevicePrimaryCtxReset_v2(0));
    else
        CHECK(cuCtxDestroy_v2(context));
    look("ended");
    printf("%d\n", calls);
    return 0;
}
