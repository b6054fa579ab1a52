/* Random calls of every kind, see shim_fuzz.h. Linked with libcuda and the simulated machine's
 * core.
 *
 *   shim_fuzz SEED STEPS FLAGS [FAMILIES [LIMIT_BYTES]]
 *
 * FLAGS: t prints the trace, e rests after every step, b holds the ledger against the books, f has
 * allocations and calls fail at random, r tells that the limit is small: no refusal may touch a
 * result. FAMILIES: which ones, by their first letters; all with none. LIMIT_BYTES: what no GPU may
 * ever have held. Ends with 0, or with 1 and one line that says why. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine_api.h"
#include "shim_fuzz.h"
#include "vgpu/contract.h"

#define REST_EVERY 40
#define TRACE_KEPT 24
#define HUGE_BYTES ((size_t)1 << 32)
#define NO_GPU_HAS_BYTES ((size_t)1 << 41)

struct fuzz fuzz;

static bool is_traced, is_held, is_faulty;
static bool is_huge; /* the next call asks for more than there is */
static const char *flags = "";
static char last[TRACE_KEPT][64];
static long step, calls;
static struct sim_machine *machine;
static const unsigned char *usage;
static uint64_t limit_bytes = UINT64_MAX;

int fuzz_said(const char *call, int result)
{
    size_t length = strcspn(call, "(");
    if (is_traced) /* of two things that are wrong the driver may name the other one */
        printf("%ld %.*s %d\n", step, (int)length, call, is_huge && result != 0 ? -1 : result);
    is_huge = false;
    snprintf(last[calls++ % TRACE_KEPT], sizeof last[0], "%ld %.*s %d", step,
             (int)(length > 40 ? 40 : length), call, result);
    return result;
}

void fuzz_fail(const char *why)
{
    fprintf(stderr, "step %ld: %s; the last calls:\n", step, why);
    for (long i = calls > TRACE_KEPT ? calls - TRACE_KEPT : 0; i < calls; i++)
        fprintf(stderr, "  %s\n", last[i % TRACE_KEPT]);
    exit(1);
}

void fuzz_untouched(int result, uint64_t value)
{
    if (fuzz.is_refused_checked && result == CUDA_ERROR_OUT_OF_MEMORY && value != UNTOUCHED)
        fuzz_fail("a refusal changed the result");
}

size_t fuzz_bytes(size_t most)
{
    static const size_t odd[] = {0,
                                 1,
                                 511,
                                 512,
                                 513,
                                 1ull << 32,
                                 1ull << 40,
                                 1ull << 42,
                                 (1ull << 42) - 1,
                                 1ull << 63,
                                 UINT64_MAX,
                                 UINT64_MAX - 510,
                                 UINT64_MAX - 511,
                                 UINT64_MAX / 2};
    size_t bytes = one_in(6) ? *ANY(odd) : 1 + roll(most);
    is_huge = is_huge || bytes >= HUGE_BYTES;
    return bytes;
}

CUstream fuzz_stream(void)
{
    return *ANY(fuzz.streams);
}

/* ---- what is held ---- */

#define MODULE_BYTES 73728 /* that a load takes for a moment before it is refused: images[0] */

static void map_usage(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/usage", getenv("VGPU_DIR"));
    int file = open(path, O_RDONLY);
    struct vgpu_usage_header header;
    if (file < 0 || pread(file, &header, sizeof header, 0) != sizeof header)
        fuzz_fail("no usage");
    usage = mmap(NULL, header.file_bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

static uint64_t charged_bytes(uint32_t device)
{
    const struct vgpu_usage_header *header = (const void *)usage;
    const struct vgpu_usage_device *each =
        (const void *)(usage + header->device_offset + device * header->device_stride);
    return __atomic_load_n(&each->total_low, __ATOMIC_ACQUIRE) & 0x3ffffffffff;
}

static uint64_t held_bytes(uint32_t device)
{
    static struct sim_device_books books;
    char why[128];
    sim_machine_books(machine, device, &books);
    if (books.memory_used_bytes > limit_bytes ||
        (books.memory_peak_bytes > limit_bytes &&
         books.memory_peak_bytes - limit_bytes > MODULE_BYTES)) {
        snprintf(why, sizeof why, "GPU %u held %lld and holds %lld, the ledger says %lld", device,
                 (long long)books.memory_peak_bytes, (long long)books.memory_used_bytes,
                 (long long)charged_bytes(device));
        fuzz_fail(why);
    }
    return books.memory_used_bytes;
}

/* The bit of each device in `at_rest`: nothing may be charged there that the GPU does not hold. */
static void compare(uint32_t at_rest)
{
    char why[160];
    for (uint32_t device = 0; is_held && device < GPUS; device++) {
        bool is_exact = at_rest >> device & 1;
        uint64_t held = held_bytes(device);
        uint64_t charged = charged_bytes(device);
        if (charged >= held && (!is_exact || charged == held))
            continue;
        snprintf(why, sizeof why, "GPU %u holds %lld, the ledger says %lld (%+lld)%s", device,
                 (long long)held, (long long)charged, (long long)(charged - held),
                 is_exact ? " at rest" : "");
        fuzz_fail(why);
    }
}

/* ---- what goes wrong ---- */

static void set_faults(bool on)
{
    static const uint32_t codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
                                     CUDA_ERROR_UNKNOWN, CUDA_ERROR_NOT_SUPPORTED};
    struct sim_device_faults device = {.failing_allocations = on && one_in(2) ? 1 + roll(2) : 0};
    struct sim_call_faults call = {.code = on ? *ANY(codes) : 0,
                                   .code_count = on && one_in(2) ? (uint32_t)(1 + roll(3)) : 0};
    sim_machine_write_device_faults(machine, (uint32_t)roll(GPUS), &device);
    sim_machine_write_call_faults(machine, &call);
}

static void clear_faults(void)
{
    struct sim_device_faults device = {0};
    struct sim_call_faults call = {0};
    for (uint32_t i = 0; i < GPUS; i++)
        sim_machine_write_device_faults(machine, i, &device);
    sim_machine_write_call_faults(machine, &call);
}

/* ---- the program ---- */

static void begin(void)
{
    ipc_begin(); /* before anything of CUDA is there to be inherited */
    if (is_held)
        map_usage();
    if (sim_machine_open(getenv("VGPU_SIM_MACHINE"), &machine) != 0)
        fuzz_fail("no machine");
    SAY(cuInit(0));
    for (int i = 0; i < GPUS; i++)
        SAY(cuDevicePrimaryCtxRetain(&fuzz.primary[i], i));
    for (int i = 0; i < GPUS; i++) {
        SAY(cuCtxSetCurrent(fuzz.primary[GPUS - 1 - i]));
        SAY(cuStreamCreate(&fuzz.streams[2 * i], 0));
        SAY(cuStreamCreate(&fuzz.streams[2 * i + 1], CU_STREAM_NON_BLOCKING));
    }
    fuzz.streams[STREAMS - 1] = NULL;
}

/* One that was destroyed under others of the stack comes up again, and may be given to no call. */
static bool may_be_current(CUcontext context)
{
    for (int i = 0; i < GPUS; i++)
        if (context == fuzz.primary[i])
            return true;
    for (size_t i = 0; i < COUNT(fuzz.made); i++)
        if (context == fuzz.made[i])
            return true;
    return context == NULL;
}

/* Everything is waited for, what is kept without use goes, and what is charged ahead is ended. */
static void rest(void)
{
    CUdeviceptr address = UNTOUCHED;
    CUcontext current;
    clear_faults();
    SAY(cuCtxGetCurrent(&current));
    array_rest();
    vmm_rest();
    ipc_rest();
    for (int i = 0; i < GPUS; i++) {
        SAY(cuCtxSetCurrent(fuzz.primary[i]));
        SAY(cuCtxSynchronize());
    }
    context_rest();
    graph_rest();
    pool_rest();
    uint32_t looked_at =
        0; /* who has ended is looked for before a refusal, which needs a context */
    for (int i = 0; i < GPUS; i++) {
        SAY(cuCtxSetCurrent(fuzz.primary[i]));
        int result = SAY(cuMemAlloc_v2(&address, NO_GPU_HAS_BYTES));
        fuzz_untouched(result, address);
        looked_at |= (uint32_t)(result == CUDA_ERROR_OUT_OF_MEMORY) << i;
    }
    if (may_be_current(current))
        SAY(cuCtxSetCurrent(current));
    compare(looked_at);
}

static const struct family {
    char letter;
    int weight;
    void (*step)(void);
} families[] = {
    {'m', 6, memory_step}, {'p', 6, pool_step}, {'g', 4, graph_step}, {'a', 4, array_step},
    {'v', 5, vmm_step},    {'s', 3, ipc_step},  {'c', 2, code_step},  {'x', 2, context_step},
};

static void choose(const char *wanted)
{
    for (;;) {
        const struct family *family = ANY(families);
        if ((*wanted == 0 || strchr(wanted, family->letter)) && (int)roll(6) < family->weight) {
            family->step();
            return;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    fuzz.random = (strtoull(argv[1], NULL, 10) + 1) * 0x9e3779b97f4a7c15u;
    long steps = atol(argv[2]);
    flags = argv[3];
    is_traced = strchr(flags, 't');
    is_held = strchr(flags, 'b');
    is_faulty = strchr(flags, 'f');
    fuzz.is_refused_checked = strchr(flags, 'r') && !is_faulty; /* the driver's own may change it */
    if (argc > 5)
        limit_bytes = strtoull(argv[5], NULL, 10);
    begin();
    for (step = 1; step <= steps; step++) {
        if (is_faulty && one_in(4))
            set_faults(true);
        choose(argc > 4 ? argv[4] : "");
        if (is_faulty)
            clear_faults();
        compare(0);
        if (step % REST_EVERY == 0 || strchr(flags, 'e'))
            rest();
    }
    rest();
    return 0;
}
