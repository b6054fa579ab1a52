/* GPU time paid for in advance, so that most launches of a capped program cost a look-up and one
 * atomic subtraction.
 *
 * When a launch has gone the long way (throttle.c), the throttle charges a budget of GPU time as far
 * as the open batch, the bound of work in flight, the virtual time and the next sample allow. A
 * launch whose kind has a known price takes that much from it and goes, whatever its kind,
 * thread and, unless a measurement is under way, stream; one that finds too little left goes the long
 * way, where what is left is given back first. No clock is read for a prepaid launch: whether the
 * GPU idled meanwhile is found out on the long way.
 *
 * A budget ends by itself when the limits or the arbiter's grant change, since both their words
 * are compared. One device of a process is prepaid at a time. Granted and collected under the device's
 * throttle lock; taken by any thread. A kind that is replaced in the table while it is looked up may
 * be charged another one's price, once. */
#ifndef VGPU_BUDGET_H
#define VGPU_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/cap/flight.h"
#include "compute/measure/estimate.h"
#include "vgpu/cuda_api.h"

/* The budget and the launches taken from it lie in one word, so that one atomic operation changes
 * both: nanoseconds above, launches below. Both may fall below 0 for the moment in which a launch
 * that found too little puts back what it took. */
#define BUDGET_SHIFT 24
#define BUDGET_NOTHING UINT64_MAX /* no two words of a slice add up to it */

struct budget {
    int64_t word;
    /* Two words whose sum is as when it was granted: the generation of `limits` and the number of
     * the grant, neither of which ever falls. BUDGET_NOTHING: nothing is prepaid. */
    const uint64_t *limits;
    const uint64_t *grant;
    uint64_t expected;
    struct estimates *kinds;
    uintptr_t stream;      /* of the measurement under way … */
    uintptr_t stream_mask; /* … or 0: no measurement, any stream will do */
    int64_t granted_ns;
    int64_t granted_at_ns;
    uint32_t device;
} __attribute__((aligned(64)));

/* A variable and not behind calls: every launch of a capped program reads it (below, inlined), and
 * only budget.c writes. */
extern struct budget budget;

/* Takes a launch of a kind from what is left. */
static inline __attribute__((always_inline)) bool budget_take_kind(struct estimate *kind)
{
    int64_t price_ns = __atomic_load_n(&kind->budget_price_ns, __ATOMIC_RELAXED);
    int64_t cost = price_ns << BUDGET_SHIFT;
    /* What is put back below must be small: a budget may have been collected by then. */
    if (__atomic_load_n(&budget.word, __ATOMIC_RELAXED) < cost)
        return false;
    if (__atomic_fetch_add(&budget.word, 1 - cost, __ATOMIC_RELAXED) < cost) {
        __atomic_fetch_sub(&budget.word, 1 - cost, __ATOMIC_RELAXED);
        return false;
    }
    return true;
}

/* True while launches on that stream are prepaid. */
static inline __attribute__((always_inline)) bool budget_covers(CUstream stream)
{
    return __atomic_load_n(budget.limits, __ATOMIC_RELAXED) +
                   __atomic_load_n(budget.grant, __ATOMIC_RELAXED) ==
               __atomic_load_n(&budget.expected, __ATOMIC_ACQUIRE) &&
           (((uintptr_t)stream ^ budget.stream) & budget.stream_mask) == 0;
}

/* Takes one launch's price if that is known and there is as much left. Only where its kind is the
 * first at its place in the table: budget_take_elsewhere does the rest, with a stack. */
static inline __attribute__((always_inline)) bool budget_take(const void *object, uint64_t blocks,
                                                              CUstream stream)
{
    if (!budget_covers(stream))
        return false;
    uint64_t key = estimate_key(object, blocks);
    struct estimate *kind = &budget.kinds->table[estimate_home(key)];
    return __atomic_load_n(&kind->key, __ATOMIC_RELAXED) == key && budget_take_kind(kind);
}

/* The same wherever its kind is in the table. */
bool budget_take_elsewhere(const void *object, uint64_t blocks, CUstream stream);

/* How many launches were taken from what is prepaid now. */
static inline uint64_t budget_launches(void)
{
    return (uint64_t)__atomic_load_n(&budget.word, __ATOMIC_RELAXED) % (1 << BUDGET_SHIFT);
}

/* ---- under the lock of `struct flight` ---- */

/* Prepays launches, as far as the bounds above leave it; to be called behind a launch of a known kind. */
void budget_grant(struct flight *flight, const struct estimate *estimate, int64_t now_ns);

/* Ends this device's budget: what was taken of it becomes launches, the rest is given back. */
void budget_collect(struct flight *flight, int64_t now_ns);

/* True while launches on that device are prepaid. */
bool budget_is_granted(uint32_t device);

/* For the child of a fork: nothing is prepaid. */
void budget_reset(void);

#endif
