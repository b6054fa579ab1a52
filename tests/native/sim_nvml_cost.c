/* What a call of NVML takes, and who waits for it. Prints in us: a list of processes; two at once; and of memory that
 * is allocated while one is under way, a piece that needs a new block and one that does not. Linked with libcuda and
 * libnvidia-ml. */
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "spin_kernel.h"
#include "vgpu/nvml_api.h"

#define LARGE_BYTES (4 << 20)
#define SMALL_BYTES 4096
#define HALF_A_MS 500

static nvmlDevice_t gpu;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void tell_since(int64_t begun_ns)
{
    printf("%.3f\n", (double)(now_ns() - begun_ns) / 1000);
}

static void *list(void *nothing)
{
    nvmlProcessInfo_v2_t processes[8];
    unsigned int count = 8;
    MUST(nvmlDeviceGetComputeRunningProcesses_v2(gpu, &count, processes));
    return nothing;
}

static void list_twice_at_once(void)
{
    pthread_t other;
    int64_t begun_ns = now_ns();
    MUST(pthread_create(&other, NULL, list, NULL));
    list(NULL);
    MUST(pthread_join(other, NULL));
    tell_since(begun_ns);
}

static void allocate_meanwhile(size_t bytes)
{
    pthread_t other;
    CUdeviceptr piece;
    MUST(pthread_create(&other, NULL, list, NULL));
    usleep(HALF_A_MS);
    int64_t begun_ns = now_ns();
    MUST(cuMemAlloc_v2(&piece, bytes));
    tell_since(begun_ns);
    MUST(pthread_join(other, NULL));
}

int main(void)
{
    CUcontext context;
    CUdeviceptr first;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&first, SMALL_BYTES));
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &gpu));
    int64_t begun_ns = now_ns();
    list(NULL);
    tell_since(begun_ns);
    list_twice_at_once();
    allocate_meanwhile(LARGE_BYTES);
    allocate_meanwhile(SMALL_BYTES);
    return 0;
}
