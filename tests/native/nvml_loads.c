/* What loads of small code, and rounds of steady work, take a program. "loads N": prints the longest load and the
 * longest wait behind one, of N, in us. "rounds SECONDS": prints the longest round of each second in us. A third
 * argument: on so many GPUs in turn. Linked with libcuda. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "spin_kernel.h"

#define SECOND_NS 1000000000ll
#define PIECE_BYTES (64 << 10)
#define MOST_GPUS 8

static CUcontext contexts[MOST_GPUS];
static CUfunction spins[MOST_GPUS];
static int gpus = 1, gpu;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void keep_longest(int64_t *longest_ns, int64_t begun_ns)
{
    int64_t passed_ns = now_ns() - begun_ns;
    if (passed_ns > *longest_ns)
        *longest_ns = passed_ns;
}

static double us(int64_t ns)
{
    return (double)ns / 1000;
}

static void launch(CUfunction spin)
{
    uint64_t kernel_ns = 1000000;
    void *arguments[] = {&kernel_ns};
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
}

static void load(int count)
{
    int64_t longest_load_ns = 0, longest_wait_ns = 0;
    for (int i = 0; i < count; i++) {
        CUmodule module;
        int64_t begun_ns = now_ns();
        MUST(cuModuleLoadData(&module, spin_ptx));
        keep_longest(&longest_load_ns, begun_ns);
        begun_ns = now_ns();
        MUST(cuCtxSynchronize());
        keep_longest(&longest_wait_ns, begun_ns);
        if (i % 2)
            MUST(cuModuleUnload(module));
    }
    printf("%.3f %.3f\n", us(longest_load_ns), us(longest_wait_ns));
}

static void work(int seconds)
{
    CUdeviceptr pooled, plain;
    for (int second = 0; second < seconds; second++) {
        int64_t longest_ns = 0, first_ns = now_ns();
        while (now_ns() < first_ns + SECOND_NS) {
            int64_t begun_ns = now_ns();
            gpu = (gpu + 1) % gpus;
            MUST(cuCtxSetCurrent(contexts[gpu]));
            MUST(cuMemAllocAsync(&pooled, PIECE_BYTES, NULL));
            launch(spins[gpu]);
            MUST(cuMemFreeAsync(pooled, NULL));
            MUST(cuStreamSynchronize(NULL));
            MUST(cuMemAlloc_v2(&plain, PIECE_BYTES));
            MUST(cuMemFree_v2(plain));
            keep_longest(&longest_ns, begun_ns);
        }
        printf("%.3f\n", us(longest_ns));
    }
}

static void begin(void)
{
    CUdeviceptr kept;
    cuuint64_t all = UINT64_MAX;
    CUmemoryPool pool;
    MUST(cuDevicePrimaryCtxRetain(&contexts[gpu], gpu));
    MUST(cuCtxSetCurrent(contexts[gpu]));
    MUST(cuDeviceGetDefaultMemPool(&pool, gpu));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    MUST(cuMemAlloc_v2(&kept, PIECE_BYTES)); /* so that its block stays */
    spins[gpu] = load_spin_kernel();
    launch(spins[gpu]);
    MUST(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4)
        return 2;
    gpus = argc == 4 ? atoi(argv[3]) : 1;
    MUST(cuInit(0));
    for (gpu = 0; gpu < gpus; gpu++)
        begin();
    if (strcmp(argv[1], "loads") == 0)
        load(atoi(argv[2]));
    else
        work(atoi(argv[2]));
    return 0;
}
