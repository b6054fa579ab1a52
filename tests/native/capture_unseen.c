/* A capture in mode GLOBAL that the shim does not see begin, as if it had begun between two steps of another thread
 * inside of a hook. That thread makes only calls that are allowed next to such a capture. Argument: which ones.
 * Prints what the end of the capture answered. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/elf_lookup.h"
#include "spin_kernel.h"

#define ROUNDS 300
#define PIECE_BYTES (2u << 20)
#define TOO_MANY_BYTES ((size_t)64 << 30)
#define ROW_BYTES 1000 /* a pitch is asked of the driver: more than this takes */
#define TOO_MANY_ROWS (TOO_MANY_BYTES / ROW_BYTES)

static CUcontext context;
static CUstream stream;
static CUfunction spin;
static CUdeviceptr pieces[ROUNDS];
static const char *calls;

static int are(const char *name)
{
    return strcmp(calls, name) == 0;
}

static void launch(void)
{
    uint64_t kernel_ns = 20000;
    void *arguments[] = {&kernel_ns};
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static void *work(void *nothing)
{
    CUdeviceptr piece;
    size_t pitch;
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++) {
        if (are("launches"))
            launch();
        if (are("frees"))
            MUST(cuMemFreeAsync(pieces[i], stream));
        if (are("pools")) {
            MUST(cuMemAllocAsync(&piece, PIECE_BYTES, stream));
            MUST(cuMemFreeAsync(piece, stream));
        }
        if (are("refusals") &&
            cuMemAllocAsync(&piece, TOO_MANY_BYTES, stream) != CUDA_ERROR_OUT_OF_MEMORY)
            exit(1);
        if (are("pitches") && cuMemAllocPitch_v2(&piece, &pitch, ROW_BYTES, TOO_MANY_ROWS, 4) !=
                                  CUDA_ERROR_OUT_OF_MEMORY)
            exit(1);
        MUST(cuStreamSynchronize(stream));
    }
    return nothing;
}

int main(int argc, char **argv)
{
    CUstream captured;
    CUgraph graph;
    pthread_t thread;
    CUdeviceptr first;
    if (argc != 2)
        return 2;
    calls = argv[1];
    MUST(cuInit(0));
    __typeof__(&cuStreamBeginCapture_v2) begin =
        elf_lookup("libcuda.so.1", "cuStreamBeginCapture_v2");
    __typeof__(&cuStreamEndCapture) end = elf_lookup("libcuda.so.1", "cuStreamEndCapture");
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    spin = load_spin_kernel();
    for (int i = 0; are("frees") && i < ROUNDS; i++)
        MUST(cuMemAlloc_v2(&pieces[i], PIECE_BYTES));
    if (are("refusals")) { /* then there is something to give back */
        MUST(cuMemAllocAsync(&first, PIECE_BYTES, stream));
        MUST(cuMemFreeAsync(first, stream));
    }
    MUST(begin(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return 3;
    pthread_join(thread, NULL);
    printf("%d\n", end(captured, &graph));
    return 0;
}
