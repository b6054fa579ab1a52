/* What a plain C hook of a launch does: launch_ask, the driver, launch_end, all by LAUNCH.
 *
 * Launches that take many arguments enter through the thunks of hook_launch.c instead. */
#ifndef VGPU_HOOK_LAUNCH_H
#define VGPU_HOOK_LAUNCH_H

#include "compute/cap/budget.h"
#include "compute/cap/gate.h"
#include "compute/cap/throttle.h"
#include "driver/export.h"
#include "hooks/hook.h"
#include "memory/local/local_memory.h"

/* The stream that `stream` stands for in a symbol whose default stream is the thread's own. */
static inline CUstream launch_stream(CUstream stream, int is_per_thread)
{
    return stream == NULL && is_per_thread ? CU_STREAM_PER_THREAD : stream;
}

/* The decision where the gate is shut and nothing is prepaid: CUDA_SUCCESS, or what the hook returns. Of
 * `launch`, which has started, it fills what launch_end needs.
 *
 * `field` is that of `real`. `object` and `amount` are the kind of work that an estimate is kept
 * of: a function and its blocks, a graph and 1, a kind of copy and its bytes. An amount of 0 does
 * nothing or is refused by the driver, so nothing is charged. `is_kernel`: the object is a function
 * that may be part of a collective (collective.h). */
CUresult launch_ask(struct launch *launch, const void *field, const void *object, uint64_t amount,
                    CUstream stream, bool is_kernel);

/* Behind the driver's call, or instead of it, with the result, which it returns. */
CUresult launch_end(struct launch *launch, CUresult result);

/* The body of a hook: where it is not free, `ask` decides about `launch`. `call` calls the driver; it stands
 * here twice, so that the compiler makes a jump of the one that nothing comes behind. */
#define LAUNCH(is_free, ask, call) \
    do { \
        if (is_free) \
            return call; \
        struct launch launch; \
        launch_start(&launch); \
        CUresult refusal = ask; \
        return refusal == CUDA_SUCCESS ? launch_end(&launch, call) : refusal; \
    } while (0)

/* That of a launch whose kind is known without a question, so that it may be prepaid. */
#define LAUNCH_KIND(symbol, object, amount, stream, is_kernel, call) \
    LAUNCH(gate_is_open() || budget_take(object, amount, stream), \
           launch_ask(&launch, &real.symbol, object, amount, stream, is_kernel), call)

#endif
