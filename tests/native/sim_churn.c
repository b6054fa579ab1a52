/* A client that makes as many calls as it is told, a little of everything: memory of several kinds,
 * copies, launches on several streams, events, waits. Gives back what it has and ends with 0, or
 * with 1 when the driver answers anything that it should not. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

#define KEPT 64
#define LARGEST_BYTES (8 << 20)
#define LONGEST_NS 2000
#define STREAMS 3
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

enum kind { NOTHING, PLAIN, MANAGED, ASYNC };

struct piece {
    CUdeviceptr address;
    size_t bytes;
    enum kind kind;
};

static void take(struct piece *piece, enum kind kind, size_t bytes, CUstream stream)
{
    if (kind == PLAIN)
        MUST(cuMemAlloc_v2(&piece->address, bytes));
    else if (kind == MANAGED)
        MUST(cuMemAllocManaged(&piece->address, bytes, CU_MEM_ATTACH_GLOBAL));
    else
        MUST(cuMemAllocAsync(&piece->address, bytes, stream));
    piece->bytes = bytes;
    piece->kind = kind;
}

static void give(struct piece *piece, CUstream stream)
{
    if (piece->kind == ASYNC)
        MUST(cuMemFreeAsync(piece->address, stream));
    else
        MUST(cuMemFree_v2(piece->address));
    piece->kind = NOTHING;
}

int main(int count, char **arguments)
{
    CUcontext context, second;
    CUmodule module;
    CUfunction spin;
    CUstream streams[STREAMS];
    CUevent event;
    struct piece kept[KEPT] = {0};
    unsigned int seed = (unsigned int)getpid();
    unsigned long long ns;
    char bytes[256] = {0};
    void *params[] = {&ns};
    long calls = count > 1 ? atol(arguments[1]) : 1000;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&spin, module, "spin_ns"));
    for (int i = 0; i < STREAMS; i++)
        MUST(cuStreamCreate(&streams[i], i ? CU_STREAM_NON_BLOCKING : 0));
    MUST(cuEventCreate(&event, 0));
    for (; calls > 0; calls--) {
        int at = rand_r(&seed) % KEPT, result;
        struct piece *piece = &kept[at];
        CUstream stream = streams[rand_r(&seed) % STREAMS];
        switch (rand_r(&seed) % 16) {
        case 0:
        case 1:
        case 2:
        case 3:
            if (piece->kind)
                give(piece, stream);
            else
                take(piece, PLAIN + rand_r(&seed) % 3, 1 + (size_t)(rand_r(&seed) % LARGEST_BYTES),
                     stream);
            break;
        case 4:
            if (piece->kind)
                MUST(cuMemsetD8Async(piece->address, (unsigned char)at,
                                     piece->bytes < 4096 ? piece->bytes : 4096, stream));
            break;
        case 5:
            if (piece->kind && piece->bytes >= sizeof bytes)
                MUST(cuMemcpyHtoDAsync_v2(piece->address, bytes, sizeof bytes, stream));
            break;
        case 6:
            MUST(cuStreamWaitEvent(stream, event, 0));
            break;
        case 7:
        case 8:
            MUST(cuEventRecord(event, stream));
            break;
        case 9:
            result = cuEventQuery(event);
            if (result != CUDA_ERROR_NOT_READY)
                MUST(result);
            break;
        case 10:
            if (rand_r(&seed) % 50 == 0)
                MUST(cuStreamSynchronize(stream));
            break;
        case 11:
            if (rand_r(&seed) % 500 == 0) {
                MUST(cuCtxCreate_v2(&second, 0, 0));
                MUST(cuCtxDestroy_v2(second));
                MUST(cuCtxSetCurrent(context));
            }
            break;
        default:
            ns = (unsigned long long)(rand_r(&seed) % LONGEST_NS);
            MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, rand_r(&seed) % 4 ? stream : NULL,
                                params, NULL));
        }
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i].kind)
            give(&kept[i], streams[0]);
    MUST(cuCtxSynchronize());
    size_t free_bytes, total_bytes;
    MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}
