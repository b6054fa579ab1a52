/* How much of a GPU a tenant wants, from what it used and how long it was held up.
 *
 * A program that had the GPU to itself would be busy on the host for as long as it is now, without
 * the time in which it waits: for its cap, for its turn, or in a call that waits for the GPU. In
 * that time it would use what it uses now. So it wants what it used divided by the time in which it
 * was not held up, and all of the GPU if that is more. This is an upper bound: the host's work and
 * the GPU's need not overlap.
 *
 * What is charged at once, as a long kernel is, runs in the time after. Both are averages over
 * DEMAND_AVERAGE_NS that forget exponentially. What a tenant says of itself
 * only decides whether turns are taken; within turns it is charged by occupancy. Pure; the caller
 * serialises. All zero is a tenant that nothing is known of. */
#ifndef VGPU_ARBITER_DEMAND_H
#define VGPU_ARBITER_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

#define DEMAND_AVERAGE_NS 40000000
#define DEMAND_LOOK_NS 10000000 /* two looks are so far apart at least */

struct demand {
    int64_t noted_ns; /* the last look; 0: none yet */
    uint64_t charged_ns;
    uint64_t stalled_ns;
    int64_t unused_ns; /* charged, and more than could have run by then */
    double known_part; /* of an average that has just begun: what it is an average of */
    double used_part;
    double stalled_part;
};

/* Notes a tenant's counters: GPU time it was charged, and time it was held up. */
void demand_note(struct demand *demand, uint64_t charged_ns, uint64_t stalled_ns, int64_t now_ns);

/* Returns what part of the GPU it wants, 0 to 1; 1 where its shim does not count (it is older). */
double demand_wanted(const struct demand *demand);

/* True while it has used the GPU lately, however seldom it says so. */
bool demand_is_alive(const struct demand *demand);

#endif
