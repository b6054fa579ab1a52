/* What this process holds of a device and the hooks do not see (code that a first launch loads, streams,
 * tables of the driver's own): what NVML says it holds, less what the ledger has for it, charged as *other*
 * and given back when it gets less.
 *
 * A look takes place at a quiet moment: in hooks of calls that wait, allocate, free or end something, never in a
 * launch. At most once a second; at once where something was loaded, handed out to be launched or ended, and
 * before a refusal. A program that makes no such call is not looked at, nor is one whose end has begun.
 *
 * NVML takes up to milliseconds, so a look first asks the CUDA driver what is in use of the GPU. What is
 * beyond the ledger of this process is the *others'*. While that stands still, nothing came to this process
 * unseen, and NVML is not asked. Where another process gives back as many bytes as this one takes unseen, at
 * the same time, the GPU has no more in use than before; once the other takes them again, NVML is asked.
 * A device is asked while a context of it is current. If none was for 16 seconds, NVML is.
 *
 * Where the others move, NVML is asked once a second, and at once for the reasons above. After 32 times that it
 * had nothing new, it is asked once in 16 seconds.
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
 * managed memory that was not touched, or pieces of another process whose figure has them (imported.h tells
 * when that is known). These hide as much of what is meant here, and the ledger still has no less than the
 * GPU gave. Memory that other processes hold is in no figure but theirs.
 *
 * One lock, for which nobody waits: who does not get it goes on. */
#ifndef VGPU_RECONCILE_H
#define VGPU_RECONCILE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Atomic; for reconcile_quiet. */
enum reconcile_due { RECONCILE_NOTHING, RECONCILE_CURRENT, RECONCILE_ALL };
extern int reconcile_due;
extern int64_t reconcile_next_ns; /* atomic; for reconcile_quiet */

/* Asks, if it is time; for reconcile_quiet. */
void reconcile_look(void);

/* Called where no lock of ours is held. */
static inline void reconcile_quiet(void)
{
    struct timespec now;
    if (__atomic_load_n(&reconcile_due, __ATOMIC_RELAXED) == RECONCILE_NOTHING) {
        int64_t next_ns = __atomic_load_n(&reconcile_next_ns, __ATOMIC_RELAXED);
        if (next_ns == INT64_MAX)
            return; /* no context yet */
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        if ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec < next_ns)
            return;
    }
    reconcile_look();
}

/* Something ended, or may be loaded by the next launch: the next quiet moment looks at once. */
static inline void reconcile_soon(void)
{
    __atomic_store_n(&reconcile_due, RECONCILE_ALL, __ATOMIC_RELAXED);
}

/* The same of the current context alone, where something was loaded, too. */
static inline void reconcile_current_soon(void)
{
    int nothing = RECONCILE_NOTHING;
    __atomic_compare_exchange_n(&reconcile_due, &nothing, RECONCILE_CURRENT, false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* This process has made a context. */
void reconcile_begin(void);

/* Before the first context on `device`, an index in `limits`: whether NVML told of the pid already. */
void reconcile_pid_is(uint32_t device, bool is_shared);

/* What NVML says this process holds. False where the figure may be another's, or there is none. */
bool reconcile_own_bytes(uint32_t device, uint64_t *bytes);

/* Whether what others have stood still since the last look, and for a second before it, by what is in use of the
 * device: then what it grows by in the next moment is this process's. */
bool reconcile_others_stand_still(uint32_t device, uint64_t gpu_bytes);

/* For fork.c. */
void reconcile_after_fork(void);

#endif
