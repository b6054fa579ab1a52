/* What this process holds of a device and the hooks do not see (code that a first launch loads, streams,
 * tables of the driver's own): what NVML says it holds, less what the ledger has for it, charged as *other*
 * and given back when it gets less.
 *
 * NVML is asked at quiet moments: in hooks of calls that wait, allocate, free or end something, never in a
 * launch. At most once a second; at once where something was loaded, handed out to be launched or ended, and
 * before a refusal, but no more than 32 times in a row beyond that. A program that makes no such call is not
 * looked at, nor is one whose end has begun.
 *
 * The figure is believed where all of this holds, else nothing is changed:
 * - the process has a context on the device (without one, all is given back and nobody asked), and none is
 *   being made;
 * - NVML lists its pid exactly once, and never listed it twice, or before its first context: then a process
 *   of another PID namespace has the same. Where it was not asked before, the first figure must be near to
 *   what the ledger has;
 * - it is neither 0 nor unknown, nor more than all processes hold of the GPU, nor less than what the process
 *   surely took (cuMemAlloc);
 * - it moved when that did;
 * - two looks agree that there is more, or less, than was charged: so much as both of them have is.
 *
 * Memory is reserved before the driver takes it and given back after the driver has, so that while no
 * reservation changed, a figure above the ledger is memory that nobody reserved. One below it says nothing:
 * managed memory that was not touched, or pieces of another process that NVML counts there. These hide as
 * much of what is meant here, and the ledger still has no less than the GPU gave. Memory that other
 * processes hold is in no figure but theirs.
 *
 * One lock, for which nobody waits: who does not get it goes on. */
#ifndef VGPU_RECONCILE_H
#define VGPU_RECONCILE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

extern bool reconcile_is_due;     /* atomic; for reconcile_quiet */
extern int64_t reconcile_next_ns; /* atomic; for reconcile_quiet */

/* Asks, if it is time; for reconcile_quiet. */
void reconcile_look(void);

/* Called where no lock of ours is held. */
static inline void reconcile_quiet(void)
{
    struct timespec now;
    if (!__atomic_load_n(&reconcile_is_due, __ATOMIC_RELAXED)) {
        int64_t next_ns = __atomic_load_n(&reconcile_next_ns, __ATOMIC_RELAXED);
        if (next_ns == INT64_MAX)
            return; /* no context yet */
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        if ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec < next_ns)
            return;
    }
    reconcile_look();
}

/* Something was loaded or ended, or may be loaded by the next launch: the next quiet moment asks at once. */
static inline void reconcile_soon(void)
{
    __atomic_store_n(&reconcile_is_due, true, __ATOMIC_RELAXED);
}

/* This process has made a context. */
void reconcile_begin(void);

/* Before the first context on `device`, an index in `limits`: whether NVML told of the pid already. */
void reconcile_pid_is(uint32_t device, bool is_shared);

/* What NVML says this process holds. False where the figure may be another's, or there is none. */
bool reconcile_own_bytes(uint32_t device, uint64_t *bytes);

/* For fork.c. */
void reconcile_after_fork(void);

#endif
