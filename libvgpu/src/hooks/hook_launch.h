/* What a plain C hook of a launch does: launch_begin, the driver, launch_end, all by LAUNCH.
 *
 * Launches that take many arguments enter through the thunks of hook_launch.c instead. */
#ifndef VGPU_HOOK_LAUNCH_H
#define VGPU_HOOK_LAUNCH_H

#include "compute/cap/gate.h"
#include "compute/cap/prepaid.h"
#include "compute/cap/throttle.h"
#include "driver/export.h"
#include "hooks/hook.h"
#include "memory/local/local_memory.h"

/* What was decided about a launch. All zero: it goes to the driver, and nothing else is done. */
struct launch {
    CUresult refusal; /* CUDA_SUCCESS: call the driver */
    bool is_measured; /* and then tell the throttle of `device` */
    bool is_growing;  /* and then say what became of the growth that this thread began */
    uint32_t device;
};

/* Of this thread's launch under way, where it may grow the context's local memory. */
extern __thread struct local_growth launch_growth;

static inline CUresult launch_refused(void)
{
    return CUDA_ERROR_INVALID_DEVICE; /* the GPU is not in this container's slice */
}

/* The stream that `stream` stands for in a symbol whose default stream is the thread's own. */
static inline CUstream launch_stream(CUstream stream, int is_per_thread)
{
    return stream == NULL && is_per_thread ? CU_STREAM_PER_THREAD : stream;
}

/* The decision where the gate is shut, and nothing is prepaid. */
struct launch launch_ask(const void *field, const void *object, uint64_t amount, CUstream stream,
                         bool is_kernel);

/* `field` is that of `real`. `object` and `amount` are the kind of work that an estimate is kept
 * of: a function and its blocks, a graph and 1, a kind of copy and its bytes. An amount of 0 does
 * nothing or is refused by the driver, so nothing is charged. `is_kernel`: the object is a function
 * that may be part of a collective (collective.h). */
static inline __attribute__((always_inline)) struct launch launch_begin(
    const void *field, const void *object, uint64_t amount, CUstream stream, bool is_kernel)
{
    if (gate_is_open() || prepaid_take(object, amount, stream))
        return (struct launch){0};
    return launch_ask(field, object, amount, stream, is_kernel);
}

/* Behind the driver's call, whose result it returns. */
static inline CUresult launch_end(const struct launch *launch, CUresult result)
{
    if (launch->is_measured)
        throttle_after(launch->device);
    if (__builtin_expect(launch->is_growing, 0))
        local_memory_end(&launch_growth, result);
    return result;
}

/* The body of a hook: `begin` decides, `call` calls the driver. */
#define LAUNCH(begin, call) \
    do { \
        struct launch launch = begin; \
        return launch.refusal != CUDA_SUCCESS ? launch.refusal : launch_end(&launch, call); \
    } while (0)

#endif
