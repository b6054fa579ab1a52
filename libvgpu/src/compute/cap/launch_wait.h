/* What keeps a launch from starting, and when to look again.
 *
 * In this order: the arbiter's window, the container's own cap, its other processes, and what this
 * process has on the GPU already. What is on the GPU, ours or a peer's, may itself wait for what would
 * be launched next (a kernel that polls host memory, a stream that waits for a value or for another
 * process), so no launch is held for that without end, nor for the cap while something of ours runs on
 * for long beyond its predicted end. Where that has been seen (program_habits.h) launches are held for the
 * cap while nothing of ours is on the GPU, rather than between what waits for each other.
 *
 * Called under the lock of `struct flight`; nothing here sleeps. */
#ifndef VGPU_LAUNCH_WAIT_H
#define VGPU_LAUNCH_WAIT_H

#include "compute/cap/flight.h"

enum launch_wait {
    LAUNCH_WAIT_NOTHING,
    LAUNCH_WAIT_CAP,   /* the virtual time is ahead of the clock */
    LAUNCH_WAIT_TURN,  /* not the container's window, or it does not fit into it */
    LAUNCH_WAIT_ORDER, /* another process of the container goes first */
    LAUNCH_WAIT_THREAD, /* what other threads measure has not got to the driver, and this goes apart */
    LAUNCH_WAIT_GPU,    /* enough is in flight, or this kind is to be measured first */
};

/* How one launch has waited so far. At first all is zero except `since_ns`. */
struct launch_wait_state {
    int64_t since_ns;
    int64_t order_ns;  /* for a peer, all in all */
    int64_t looked_ns; /* when it was held for a peer; 0: it was not, at the last look */
    int64_t thread_ns; /* since when for another thread; 0: not yet */
    int64_t gpu_ns;    /* since when for the GPU; 0: not yet */
    int64_t poll_ns;   /* pause between two looks at the GPU; 0: there was none yet */
    bool is_capped;    /* it has used up what its cap gives it */
    bool is_over;      /* it has waited for the GPU long enough */
};

/* What holds a launch. One that comes now, for which `wait` is NULL, may take what its predecessor in the
 * burst left. */
enum launch_wait launch_wait_why(struct flight *flight, const struct launch *launch,
                                 const struct estimate *estimate,
                                 const struct launch_wait_state *wait, int64_t now_ns);

/* What still holds one that waits: nothing as well once it has waited long enough. */
enum launch_wait launch_wait_again(struct flight *flight, const struct launch *launch,
                                   const struct estimate *estimate, struct launch_wait_state *wait,
                                   int64_t now_ns);

/* When it looks again; says meanwhile what the container's other processes must know. */
int64_t launch_wait_until(struct flight *flight, const struct launch *launch,
                          const struct estimate *estimate, struct launch_wait_state *wait,
                          enum launch_wait why, int64_t now_ns);

#endif
