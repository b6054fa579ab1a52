/* Hooks of what takes GPU time: kernel and graph launches, and the calls that wait for them.
 *
 * A plain C hook for an eleven-argument call loads and stores all its stack arguments again, at
 * three times the cost of the whole check. So kernel launches enter through an assembly thunk that
 * compares two words (gate.h) and jumps to the driver with every register and the stack as they
 * came. Only when they differ are the six argument registers saved around launch_gate, which
 * returns where to jump: the driver, the C body that also ends a measurement behind the launch, or
 * the refusal. */
#include <stddef.h>

#include "compute/cap/collective.h"
#include "compute/cap/uncapped.h"
#include "hooks/hook_launch.h"
#include "memory/contexts/reconcile.h"
#include "memory/graphs/graph_memory.h"
#include "memory/ledger/deferred_free.h"
#include "memory/local/local_functions.h"
#include "memory/pools/pool.h"

static __thread struct launch under_way; /* from a thunk to the C body behind it */

#define KERNEL_ARGUMENTS \
    CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
        unsigned int block_x, unsigned int block_y, unsigned int block_z, \
        unsigned int shared_bytes, CUstream stream, void **parameters
#define KERNEL_VALUES \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters

/* The C bodies behind the thunks: the launch, and the end of its measurement. */
#define MEASURED(symbol, arguments, values) \
    static CUresult measured_##symbol arguments \
    { \
        struct launch launch = under_way; \
        return launch_end(&launch, real.symbol values); \
    }

MEASURED(cuLaunchKernel, (KERNEL_ARGUMENTS, void **extra), (KERNEL_VALUES, extra))
MEASURED(cuLaunchKernel_ptsz, (KERNEL_ARGUMENTS, void **extra), (KERNEL_VALUES, extra))
MEASURED(cuLaunchCooperativeKernel, (KERNEL_ARGUMENTS), (KERNEL_VALUES))
MEASURED(cuLaunchCooperativeKernel_ptsz, (KERNEL_ARGUMENTS), (KERNEL_VALUES))

/* What a thunk's row stands for. */
struct launch_row {
    void *const *driver;
    void *measured;
    int is_per_thread; /* its stream 0 is the thread's own default stream */
};

enum { ROW_KERNEL, ROW_KERNEL_PTSZ, ROW_COOPERATIVE, ROW_COOPERATIVE_PTSZ };

#define LAUNCH_ROW(symbol, per_thread) \
    {(void *const *)&real.symbol, (void *)measured_##symbol, per_thread}

__attribute__((used)) static const struct launch_row launch_rows[] = {
    [ROW_KERNEL] = LAUNCH_ROW(cuLaunchKernel, 0),
    [ROW_KERNEL_PTSZ] = LAUNCH_ROW(cuLaunchKernel_ptsz, 1),
    [ROW_COOPERATIVE] = LAUNCH_ROW(cuLaunchCooperativeKernel, 0),
    [ROW_COOPERATIVE_PTSZ] = LAUNCH_ROW(cuLaunchCooperativeKernel_ptsz, 1),
};

static CUresult refused_under_way(void)
{
    return under_way.refusal;
}

/* The decision where nothing is prepaid; apart, so that the way before needs no stack. */
static __attribute__((noinline)) void *launch_ask_gate(CUfunction function, uint64_t blocks,
                                                       CUstream stream,
                                                       const struct launch_row *row)
{
    if (gate_is_quiet() && !local_functions_is_pending(function))
        return *row->driver;
    struct launch launch;
    launch_start(&launch);
    launch.refusal = launch_ask(&launch, row->driver, function, blocks,
                                launch_stream(stream, row->is_per_thread), true);
    if (launch.refusal == CUDA_SUCCESS && !launch_is_measured(&launch) &&
        launch.growth.context == NULL)
        return *row->driver;
    under_way = launch;
    return launch.refusal == CUDA_SUCCESS ? row->measured : (void *)refused_under_way;
}

/* Returns the address the thunk jumps to. A thread's own default stream goes by the name of the
 * legacy one here: what is measured on that one waits for it, too. */
__attribute__((used)) void *launch_gate(CUfunction function, unsigned int grid_x,
                                        unsigned int grid_y, unsigned int grid_z, CUstream stream,
                                        const struct launch_row *row)
{
    uint64_t blocks = (uint64_t)grid_x * grid_y * grid_z;
    if (__builtin_expect(budget_take(function, blocks, stream), 1))
        return *row->driver;
    return launch_ask_gate(function, blocks, stream, row);
}

/* The thunk of one row. Stack at entry: return address, block_z, shared_bytes, stream; behind the
 * six pushes and the alignment the stream is 56 bytes further. Naked, so that the compiler adds
 * nothing; extended, so that a field of `real` can be named by its offset. */
#define SAVE(name) "    pushq %%" name "\n    .cfi_adjust_cfa_offset 8\n"
#define RESTORE(name) "    popq %%" name "\n    .cfi_adjust_cfa_offset -8\n"
#define LAUNCH_THUNK(symbol, row, ...) \
    VGPU_EXPORT __attribute__((naked)) CUresult symbol(__VA_ARGS__) \
    { \
        __asm__("    movq gate_watch(%%rip), %%r11\n" \
                "    movq gate_expected(%%rip), %%rax\n" \
                "    cmpq %%rax, (%%r11)\n" \
                "    jne 1f\n" \
                "    jmpq *real+%c0(%%rip)\n" \
                "1:\n" SAVE("rdi") SAVE("rsi") SAVE("rdx") SAVE("rcx") SAVE("r8") \
                    SAVE("r9") "    subq $8, %%rsp\n    .cfi_adjust_cfa_offset 8\n" \
                               "    movq 24+56(%%rsp), %%r8\n" \
                               "    leaq launch_rows+%c1(%%rip), %%r9\n" \
                               "    call launch_gate\n" \
                               "    addq $8, %%rsp\n    .cfi_adjust_cfa_offset -8\n" RESTORE("r9") \
                                   RESTORE("r8") RESTORE("rcx") RESTORE("rdx") RESTORE("rsi") \
                                       RESTORE("rdi") "    jmpq *%%rax\n" \
                : \
                : "i"(offsetof(struct real, symbol)), "i"((row) * sizeof(struct launch_row))); \
    }

LAUNCH_THUNK(cuLaunchKernel, ROW_KERNEL, KERNEL_ARGUMENTS, void **extra)
LAUNCH_THUNK(cuLaunchKernel_ptsz, ROW_KERNEL_PTSZ, KERNEL_ARGUMENTS, void **extra)
LAUNCH_THUNK(cuLaunchCooperativeKernel, ROW_COOPERATIVE, KERNEL_ARGUMENTS)
LAUNCH_THUNK(cuLaunchCooperativeKernel_ptsz, ROW_COOPERATIVE_PTSZ, KERNEL_ARGUMENTS)

/* ---- launches with few arguments are plain C ---- */

CUresult launch_ask(struct launch *launch, const void *field, const void *object, uint64_t amount,
                    CUstream stream, bool is_kernel)
{
    if (!cuda_has(field))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (amount == 0 || budget_take_elsewhere(object, amount, stream))
        return CUDA_SUCCESS;
    bool is_pending = is_kernel && local_functions_is_pending(object);
    if (gate_is_quiet() && !is_pending) /* nothing else keeps the gate shut */
        return CUDA_SUCCESS;
    CUresult refusal =
        is_pending ? local_memory_begin(&launch->growth, object, stream) : CUDA_SUCCESS;
    if (refusal != CUDA_SUCCESS)
        return refusal;
    launch->key = estimate_key(object, amount);
    launch->stream = stream;
    launch->has_begun = false;
    launch->is_collective =
        is_kernel ? collective_is_function((CUfunction)object) : collective_is_known(object);
    return gate_enter(launch) ? CUDA_SUCCESS : launch_end(launch, GATE_REFUSAL);
}

CUresult launch_end(struct launch *launch, CUresult result)
{
    if (launch->batch != 0)
        throttle_after(launch);
    if (launch->pairing != 0)
        uncapped_after(launch);
    return launch->growth.context == NULL ? result : local_memory_end(&launch->growth, result);
}

/* True where the kernel may begin while the one ahead of it ends, or has others begin while it ends. */
static bool is_dependent(const CUlaunchConfig *config)
{
    for (unsigned int i = 0; config->attrs != NULL && i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        int id = (int)attribute->id;
        if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
            (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
             attribute->value.programmaticStreamSerializationAllowed))
            return true;
    }
    return false;
}

static CUresult ask_extended(struct launch *launch, const void *field, const CUlaunchConfig *config,
                             CUfunction function, uint64_t blocks, CUstream stream)
{
    launch->is_dependent = config != NULL && is_dependent(config);
    return launch_ask(launch, field, function, blocks, stream, true);
}

#define LAUNCH_EX(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(const CUlaunchConfig *config, CUfunction function, \
                                void **parameters, void **extra) \
    { \
        uint64_t blocks = \
            config == NULL ? 0 : (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ; \
        CUstream stream = launch_stream(config == NULL ? NULL : config->hStream, per_thread); \
        LAUNCH(gate_is_open() || budget_take(function, blocks, stream), \
               ask_extended(&launch, &real.symbol, config, function, blocks, stream), \
               real.symbol(config, function, parameters, extra)); \
    }

LAUNCH_EX(cuLaunchKernelEx, 0)
LAUNCH_EX(cuLaunchKernelEx_ptsz, 1)

#define LAUNCH_GRAPH(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(CUgraphExec exec, CUstream stream) \
    { \
        LAUNCH_KIND(symbol, exec, 1, launch_stream(stream, per_thread), false, \
                    graph_memory_call(exec, stream, real.symbol)); \
    }

LAUNCH_GRAPH(cuGraphLaunch, 0)
LAUNCH_GRAPH(cuGraphLaunch_ptsz, 1)

/* ---- calls that wait for the GPU ---- */
static CUresult waited(int64_t began_ns, CUresult result)
{
    throttle_after_wait(began_ns);
    uncapped_after_wait();
    pool_after_wait();
    deferred_free_look();
    reconcile_quiet();
    return result;
}

/* `found` is what a call that succeeds has shown to be idle. */
#define WAIT(symbol, parameters, found, ...) \
    VGPU_EXPORT CUresult symbol parameters \
    { \
        NEEDS(symbol); \
        int64_t began_ns = throttle_before_wait(); \
        CUresult result = waited(began_ns, real.symbol(__VA_ARGS__)); \
        if (result == CUDA_SUCCESS) { \
            found; \
        } \
        return result; \
    }
#define IDLE(stream, per_thread) throttle_found_idle(launch_stream(stream, per_thread))
#define DTOH_PARAMETERS (void *host, CUdeviceptr device, size_t bytes)

WAIT(cuStreamSynchronize, (CUstream stream), IDLE(stream, 0), stream)
WAIT(cuStreamSynchronize_ptsz, (CUstream stream), IDLE(stream, 1), stream)
WAIT(cuEventSynchronize, (CUevent event), , event)
WAIT(cuCtxSynchronize, (void), IDLE(NULL, 0))
WAIT(cuCtxSynchronize_v2, (CUcontext context), , context)
WAIT(cuMemcpyDtoH_v2, DTOH_PARAMETERS, IDLE(NULL, 0), host, device, bytes)
WAIT(cuMemcpyDtoH_v2_ptds, DTOH_PARAMETERS, IDLE(NULL, 1), host, device, bytes)
