/* What a plain C hook of a launch does: the gate, the driver, the end of a measurement.
 *
 * Launches that take many arguments enter through the thunks of hook_launch.c instead. */
#ifndef VGPU_HOOK_LAUNCH_H
#define VGPU_HOOK_LAUNCH_H

#include "compute/gate.h"
#include "compute/prepaid.h"
#include "compute/throttle.h"
#include "hooks/export.h"
#include "hooks/hook.h"

static inline CUresult launch_refused(void)
{
    return CUDA_ERROR_INVALID_DEVICE; /* the GPU is not in this container's slice */
}

/* The stream that `stream` stands for in a symbol whose default stream is the thread's own. */
static inline CUstream launch_stream(CUstream stream, int is_per_thread)
{
    return stream == NULL && is_per_thread ? CU_STREAM_PER_THREAD : stream;
}

/* `object` and `amount` are the kind of work that an estimate is kept of: a function and its
 * blocks, a graph and 1, a kind of copy and its bytes. An amount of 0 does nothing or is refused by
 * the driver, so nothing is charged. */
#define LAUNCH(symbol, object, amount, stream, call) \
    LAUNCH_PART(symbol, object, amount, stream, false, call)

/* The same of what may be part of a collective (collective.h). */
#define LAUNCH_PART(symbol, object, amount, stream, is_collective, call) \
    do { \
        if (gate_is_open()) \
            return call; \
        NEED(symbol); \
        uint64_t launch_amount = amount; \
        if (launch_amount == 0 || prepaid_take(object, launch_amount, stream)) \
            return call; \
        uint32_t launch_device = 0; \
        enum gate_answer launch_answer = \
            gate_enter(object, launch_amount, stream, is_collective, &launch_device); \
        if (launch_answer == GATE_REFUSE) \
            return launch_refused(); \
        CUresult launch_result = call; \
        if (launch_answer == GATE_MEASURE) \
            throttle_after(launch_device); \
        return launch_result; \
    } while (0)

#endif
