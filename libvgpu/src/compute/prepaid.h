/* Launches paid for in advance, so that most launches of a capped program cost one atomic
 * decrement.
 *
 * When a launch has gone the long way (throttle.c) and its kind is well known, the throttle charges
 * as many further launches of the same function, grid and stream as the open batch, the bound of
 * work in flight and the virtual time leave room for: these are prepaid. A launch that matches
 * takes one and goes; any other goes the long way, where what is left is taken back first. No clock
 * is read for a prepaid launch: whether the GPU idled meanwhile is found out when the batch ends.
 *
 * One kind a process is prepaid at a time. Granted and revoked under the device's throttle lock;
 * taken by any thread. A thread that compares with the former kind and takes from the next gets a
 * launch at another kind's price: the measurement of the batch corrects it. */
#ifndef VGPU_PREPAID_H
#define VGPU_PREPAID_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/cuda_api.h"

struct prepaid {
    int64_t left; /* atomic; may fall below 0 by racing threads */
    const void *object;
    uint64_t blocks;
    CUstream stream;
    int64_t granted;
    uint32_t device;
} __attribute__((aligned(64)));

/* A variable and not behind calls: every launch of a capped program reads it (below, inlined), and
 * only flight.c writes. */
extern struct prepaid prepaid;

/* Takes one launch if it is of the kind that is prepaid. */
static inline bool prepaid_take(const void *object, uint64_t blocks, CUstream stream)
{
    if (prepaid.object != object || prepaid.blocks != blocks || prepaid.stream != stream ||
        __atomic_load_n(&prepaid.left, __ATOMIC_RELAXED) <= 0)
        return false;
    return __atomic_fetch_sub(&prepaid.left, 1, __ATOMIC_RELAXED) > 0;
}

#endif
