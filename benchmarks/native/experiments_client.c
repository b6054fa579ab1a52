/*
 * Asks a driver, simulated or real, what was never measured of one, for the figure `silicon`. Prints numbers, one a
 * line; silicon/experiments.py says what each is.
 *
 * Arguments: what, and rounds_per_ms of the GPU, as client.h tells.
 *   nvml    us of NVML's memory info and process list, with 1 and with 32 contexts
 *   host    kernels of 1 ms and host functions of 1 ms in turn: kernels a second
 *   value   the same with waits for a value that the host writes 1 ms after the kernel
 *   events  ns of cuEventRecord and cuEventQuery, 0, 5, 15, 50 and 200 us after the last call
 *   loads   us that one of 500 loads of a small cubin takes, the middle one and the longest
 *   idle    a second of 1 ms kernels after 10 s without any: percent of the time that they took in the first 100 ms,
 *           in the fullest and in the emptiest 100 ms thereafter
 */
#include <dlfcn.h>
#include <string.h>

#include "client.h"
#include "vgpu/cuda_calls.h"

#define MS_NS 1000000ull
#define BLOCKS 264 /* two of 1024 threads on each SM of an H100 */
#define THREADS 1024
#define CONTEXTS 32
#define REPEATS 100
#define LOADS 500
#define IDLE_SECONDS 10
#define DEVICEMAP 2 /* CU_MEMHOSTALLOC_DEVICEMAP */
#define BINS 10

static const char ptx[] = CLIENT_PTX_BEGIN CLIENT_PTX_SPIN;
static CUfunction spin;
static CUstream stream;
static uint64_t rounds_per_ms;

static void pass(uint64_t ns)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)},
        NULL);
}

static void launch(uint64_t duration_ns)
{
    struct client_spin work = client_spin(duration_ns, rounds_per_ms, BLOCKS, 1);
    void *params[] = CLIENT_SPIN_PARAMS(work);
    MUST(cuLaunchKernel(spin, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
}

static int by_size(const void *one, const void *other)
{
    uint64_t left = *(const uint64_t *)one, right = *(const uint64_t *)other;
    return (left > right) - (left < right);
}

static double middle(uint64_t *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return (double)values[count / 2];
}

/* --- NVML ------------------------------------------------------------------------------------- */

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_process { /* of calls _v2 */
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

static void *nvml(const char *name)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW),
         *found = library ? dlsym(library, name) : NULL;
    if (found == NULL) {
        fprintf(stderr, "NVML has no %s\n", name);
        exit(1);
    }
    return found;
}

static void time_nvml(void *device)
{
    int (*info)(void *, struct nvml_memory *) = nvml("nvmlDeviceGetMemoryInfo");
    int (*list)(void *, unsigned int *, struct nvml_process *) =
        nvml("nvmlDeviceGetComputeRunningProcesses_v2");
    struct nvml_process processes[64];
    struct nvml_memory memory;
    uint64_t info_ns[REPEATS], list_ns[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        unsigned int count = 64;
        uint64_t begun_ns = now_ns();
        MUST(info(device, &memory));
        info_ns[i] = now_ns() - begun_ns;
        begun_ns = now_ns();
        MUST(list(device, &count, processes));
        list_ns[i] = now_ns() - begun_ns;
    }
    printf("%.1f\n%.1f\n", middle(info_ns, REPEATS) / 1e3, middle(list_ns, REPEATS) / 1e3);
}

static void ask_nvml(void)
{
    int (*begin)(void) = nvml("nvmlInit_v2"),
        (*get)(unsigned int, void **) = nvml("nvmlDeviceGetHandleByIndex_v2");
    void *device;
    CUcontext context;
    MUST(begin());
    MUST(get(0, &device));
    time_nvml(device);
    for (int i = 1; i < CONTEXTS; i++)
        MUST(cuCtxCreate_v2(&context, 0, 0));
    time_nvml(device);
}

/* --- waits in a stream ------------------------------------------------------------------------ */

static void pass_a_millisecond(void *unused)
{
    (void)unused;
    pass(MS_NS);
}

#define STEPS 1000

static void wait_for_host(void)
{
    for (int i = 0; i < STEPS; i++) {
        launch(MS_NS);
        MUST(cuLaunchHostFunc(stream, pass_a_millisecond, NULL));
    }
    MUST(cuStreamSynchronize(stream));
}

static void wait_for_value(void)
{
    volatile uint32_t *word;
    CUdeviceptr address;
    CUevent done[2];
    MUST(cuMemHostAlloc((void **)&word, sizeof *word, DEVICEMAP));
    MUST(cuMemHostGetDevicePointer_v2(&address, (void *)word, 0));
    *word = 0;
    for (int i = 0; i < 2; i++)
        MUST(cuEventCreate(&done[i], CU_EVENT_DEFAULT));
    for (uint32_t step = 1; step <= STEPS; step++) {
        launch(MS_NS);
        MUST(cuEventRecord(done[step % 2], stream));
        MUST(cuStreamWaitValue32_v2(stream, address, step, CU_STREAM_WAIT_VALUE_GEQ));
        if (step > 1) { /* so that a kernel always waits behind the value */
            MUST(cuEventSynchronize(done[(step - 1) % 2]));
            pass(MS_NS);
            *word = step - 1;
        }
    }
    *word = STEPS;
    MUST(cuStreamSynchronize(stream));
}

static void tell_rate(void (*run)(void))
{
    uint64_t begun_ns = now_ns();
    run();
    printf("%.3f\n", STEPS * 1e9 / (double)(now_ns() - begun_ns));
}

/* --- events ----------------------------------------------------------------------------------- */

static void work_for(uint64_t ns)
{
    uint64_t end_ns = now_ns() + ns;
    while (now_ns() < end_ns)
        continue;
}

static void time_events(void)
{
    static const uint64_t gaps_ns[] = {0, 5000, 15000, 50000, 200000};
    CUevent event;
    uint64_t record_ns[REPEATS], query_ns[REPEATS];
    MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
    for (size_t gap = 0; gap < sizeof gaps_ns / sizeof *gaps_ns; gap++) {
        for (int i = 0; i < REPEATS; i++) {
            MUST(cuEventQuery(event)); /* so that it is done, and this was the last call */
            work_for(gaps_ns[gap]);
            uint64_t begun_ns = now_ns();
            MUST(cuEventRecord(event, stream));
            record_ns[i] = now_ns() - begun_ns;
            MUST(cuEventSynchronize(event));
            work_for(gaps_ns[gap]);
            begun_ns = now_ns();
            MUST(cuEventQuery(event));
            query_ns[i] = now_ns() - begun_ns;
        }
        printf("%.0f\n%.0f\n", middle(record_ns, REPEATS), middle(query_ns, REPEATS));
    }
}

/* --- loads ------------------------------------------------------------------------------------ */

static void time_loads(void)
{
    static uint64_t load_ns[LOADS];
    CUlinkState state;
    CUmodule module;
    void *cubin;
    size_t bytes;
    MUST(cuLinkCreate_v2(0, NULL, NULL, &state));
    MUST(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)ptx, sizeof ptx, "spin", 0, NULL, NULL));
    MUST(cuLinkComplete(state, &cubin, &bytes));
    for (int i = 0; i < LOADS; i++) {
        uint64_t begun_ns = now_ns();
        MUST(cuModuleLoadData(&module, cubin));
        load_ns[i] = now_ns() - begun_ns;
    }
    double middle_ns = middle(load_ns, LOADS);
    printf("%.1f\n%.1f\n", middle_ns / 1e3, (double)load_ns[LOADS - 1] / 1e3);
}

/* --- idle ------------------------------------------------------------------------------------- */

/* Launches for so long, and counts the kernels that ended in each part of it. */
static void fill_bins(uint64_t length_ns, unsigned bins[BINS])
{
    CUevent done[2];
    uint64_t begun_ns = now_ns(), passed_ns = 0;
    for (int i = 0; i < 2; i++)
        MUST(cuEventCreate(&done[i], CU_EVENT_DEFAULT));
    for (unsigned step = 0; passed_ns < length_ns; step++) {
        launch(MS_NS); /* one more than is waited for, so that the GPU need not wait for the host */
        MUST(cuEventRecord(done[step % 2], stream));
        if (step == 0)
            continue;
        MUST(cuEventSynchronize(done[(step - 1) % 2]));
        passed_ns = now_ns() - begun_ns;
        if (passed_ns < length_ns)
            bins[passed_ns * BINS / length_ns]++;
    }
    MUST(cuStreamSynchronize(stream));
}

static void idle_and_begin(void)
{
    unsigned bins[BINS] = {0}, fullest = 0, emptiest = 100;
    fill_bins(SECOND_NS, bins); /* its kernels are known, and its share is used up */
    memset(bins, 0, sizeof bins);
    pass(IDLE_SECONDS * SECOND_NS);
    fill_bins(SECOND_NS, bins);
    for (int i = 1; i < BINS; i++) {
        fullest = bins[i] > fullest ? bins[i] : fullest;
        emptiest = bins[i] < emptiest ? bins[i] : emptiest;
    }
    printf("%u\n%u\n%u\n", bins[0], fullest, emptiest);
}

int main(int count, char **arguments)
{
    const char *what = count == 3 ? arguments[1] : "";
    rounds_per_ms = count == 3 ? strtoull(arguments[2], NULL, 10) : 0;
    MUST(cuModuleGetFunction(&spin, client_load(ptx), "spin_ns"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch(1); /* the very first one takes longer */
    MUST(cuStreamSynchronize(stream));
    if (strcmp(what, "nvml") == 0)
        ask_nvml();
    else if (strcmp(what, "host") == 0)
        tell_rate(wait_for_host);
    else if (strcmp(what, "value") == 0)
        tell_rate(wait_for_value);
    else if (strcmp(what, "events") == 0)
        time_events();
    else if (strcmp(what, "loads") == 0)
        time_loads();
    else if (strcmp(what, "idle") == 0)
        idle_and_begin();
    else
        return 2;
    return 0;
}
