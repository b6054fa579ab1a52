/*
 * Takes memory of one kind and holds it, for the figure `silicon`; for a simulated and a real GPU.
 *
 * Argument: pieces BYTES (plain pieces until one is refused), local BYTES (one launch of a kernel with
 * so much local memory a thread), graph (one launch of 100 times 64 MiB taken and given back),
 * destroyed (a stream is destroyed while it has work, then another one is launched on).
 *
 * Prints "context", waits for a line, does it, prints "did COUNT" (pieces that were granted, or 1)
 * or "refused CODE", and waits for the end of stdin, so that somebody can look at the GPU at both
 * moments. What a kind needs, its context and module, is there at the first.
 */
#include <string.h>

#include "client.h"
#include "vgpu/cuda_calls.h"
#include "vgpu/cuda_graph.h"

#define MIB ((size_t)1 << 20)
#define ROUNDS 100

/* What it writes depends on an argument, so that no compiler does without the local memory, whose bytes
 * stand between the two. */
static const char ptx_begin[] =
    CLIENT_PTX_BEGIN CLIENT_PTX_SPIN ".visible .entry spill(.param .u64 at)\n"
                                     "{\n"
                                     "    .local .align 16 .b8 space[";
static const char ptx_end[] = "];\n"
                              "    .reg .u64 %at, %base;\n"
                              "    .reg .u32 %value;\n"
                              "    ld.param.u64 %at, [at];\n"
                              "    mov.u64 %base, space;\n"
                              "    add.u64 %base, %base, %at;\n"
                              "    st.local.u32 [%base], 1;\n"
                              "    ld.local.u32 %value, [%base];\n"
                              "    ret;\n"
                              "}\n";
static CUfunction spill, spin;

static void finish(int result, unsigned long count)
{
    if (result == CUDA_SUCCESS)
        printf("did %lu\n", count);
    else
        printf("refused %d\n", result);
    fflush(stdout);
    for (struct client_line line; client_read_line(&line);)
        continue;
    exit(0);
}

static void take_pieces(size_t bytes)
{
    CUdeviceptr piece;
    unsigned long count = 0;
    while (cuMemAlloc_v2(&piece, bytes) == CUDA_SUCCESS)
        count++;
    finish(CUDA_SUCCESS, count);
}

static void take_local(void)
{
    uint64_t at = 0;
    void *params[] = {&at};
    int result = cuLaunchKernel(spill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    if (result == CUDA_SUCCESS)
        MUST(cuCtxSynchronize());
    finish(result, 1);
}

static void take_in_a_graph(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr piece;
        MUST(cuMemAllocAsync(&piece, 64 * MIB, stream));
        MUST(cuMemFreeAsync(piece, stream));
    }
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    int result = cuGraphLaunch(exec, stream);
    if (result == CUDA_SUCCESS)
        MUST(cuStreamSynchronize(stream));
    finish(result, 1);
}

static void destroy_busy(void)
{
    struct client_spin work = client_spin(20000, 0, 1, 1); /* how long does not matter */
    void *params[] = CLIENT_SPIN_PARAMS(work);
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    /* kernels that are alike, so that their time is known and several are measured together */
    for (int i = 0; i < ROUNDS; i++)
        MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    MUST(cuStreamSynchronize(stream));
    for (int round = 0; round < 20; round++) {
        CUstream busy = stream;
        for (int i = 0; i < 5; i++)
            MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, busy, params, NULL));
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        MUST(cuStreamDestroy_v2(busy));
        MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    }
    MUST(cuCtxSynchronize());
    finish(CUDA_SUCCESS, 1);
}

int main(int count, char **arguments)
{
    struct client_line line;
    const char *kind = count > 1 ? arguments[1] : "";
    const char *local_bytes = strcmp(kind, "local") == 0 && count == 3 ? arguments[2] : "16";
    char ptx[sizeof ptx_begin + sizeof ptx_end + 16];
    snprintf(ptx, sizeof ptx, "%s%.16s%s", ptx_begin, local_bytes, ptx_end);
    CUmodule module = client_load(ptx);
    MUST(cuModuleGetFunction(&spill, module, "spill"));
    MUST(cuModuleGetFunction(&spin, module, "spin_ns"));
    printf("context\n");
    fflush(stdout);
    if (!client_read_line(&line))
        return 0;
    if (strcmp(kind, "pieces") == 0 && count == 3)
        take_pieces(strtoull(arguments[2], NULL, 10));
    else if (strcmp(kind, "local") == 0 && count == 3)
        take_local();
    else if (strcmp(kind, "graph") == 0)
        take_in_a_graph();
    else if (strcmp(kind, "destroyed") == 0)
        destroy_busy();
    fprintf(stderr, "'%s' is not pieces BYTES, local BYTES, graph or destroyed\n", kind);
    return 2;
}
