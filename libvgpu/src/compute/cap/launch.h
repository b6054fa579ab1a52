/* What is found out about a launch before the driver's call and needed behind it.
 *
 * A launch that nothing delays has none of this. Any other one has it on the stack of its hook, from launch_start
 * to launch_end (hook_launch.h). So each part of a call for several devices has its own, and so has a launch that
 * a tool makes inside of another one. Only between a thunk and the C body behind it a thread-local one holds it
 * (hook_launch.c). */
#ifndef VGPU_LAUNCH_H
#define VGPU_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/cuda_api.h"

/* What a launch makes of its context's local memory (memory/local/local_memory.h, which alone writes it). */
struct local_growth {
    CUcontext context; /* NULL: nothing was begun */
    uint64_t bytes_a_thread;
    bool is_sampled; /* it will be seen whether the device took anything */
    uint64_t grown_bytes, own_bytes, charge_count;
};

struct launch {
    uint32_t device;
    bool is_collective; /* a part of one (collective.h) */
    bool has_begun;     /* it must not wait: others of the same call have begun */
    bool is_dependent;  /* its kernel overlaps those next to it: alone it takes longer (flight.h) */
    uint64_t key;       /* of its kind (estimate.h) */
    CUstream stream;
    uint64_t batch;   /* that it is on its way in (batch.h); 0: in none */
    uint64_t pairing; /* number of the pair of events around it (uncapped.c); 0: no pair */
    struct local_growth growth;
    CUresult refusal; /* what is returned behind a thunk instead of calling the driver */
};

/* Nothing is known of it yet. What nobody reads before it is written is left as it is: that is most of it. */
static inline void launch_start(struct launch *launch)
{
    launch->is_dependent = false;
    launch->batch = 0;
    launch->pairing = 0;
    launch->growth.context = NULL;
}

/* True when its batch or its pair of events is to be told that the driver has it. */
static inline bool launch_is_measured(const struct launch *launch)
{
    return launch->batch != 0 || launch->pairing != 0;
}

#endif
