/* The arithmetic of a compute cap: one virtual time per container and device, in `usage`.
 *
 * The generic cell rate algorithm: every launch moves the virtual time V ahead by its GPU time
 * divided by the cap; work may start while V is not ahead of the clock. Corrections by measured
 * time move V either way, so an error of an estimate is debt or credit and the long-run part is
 * exact whatever the kernels' length. No refill, no lock: V is one atomic word that all processes
 * of the container share.
 *
 * Credit is what a tenant may catch up after a pause. It is clipped to VIRTUAL_TIME_BURST_NS, and
 * only for time in which the tenant neither waited nor had work in flight; clipping at other
 * moments would take work away from long kernels.
 *
 * Pure: time comes as an argument (CLOCK_MONOTONIC, nanoseconds). Atomic by itself. */
#ifndef VGPU_VIRTUAL_TIME_H
#define VGPU_VIRTUAL_TIME_H

#include <stdint.h>
#ifndef VGPU_CFFI
#include "vgpu/contract.h"
#endif

#define VIRTUAL_TIME_BURST_NS 50000000
/* V may be this far ahead before a launch sleeps: saves small synchronous kernels a sleep each. */
#define VIRTUAL_TIME_SLACK_NS 1000000

/* Returns what `gpu_ns` of GPU time cost in virtual time under a cap of `percent` (1..100). */
int64_t virtual_time_cost_ns(int64_t gpu_ns, uint32_t percent);

/* To be called when the cap may have changed: what V is ahead of the clock (or behind) was counted
 * in the old one, and is converted once, by whichever process comes first. */
void virtual_time_set_percent(struct vgpu_usage_device *device, int64_t now_ns, uint32_t percent);

/* Called when a launch enters, before it waits: clips the credit of a pause that ended now. */
void virtual_time_enter(struct vgpu_usage_device *device, int64_t now_ns);

/* Returns how long a launch must wait: 0 while V is at most `slack_ns` ahead, else until V is
 * reached; with a negative slack until the clock is ahead of V by as much. */
int64_t virtual_time_wait_ns(const struct vgpu_usage_device *device, int64_t now_ns,
                             int64_t slack_ns);

/* Returns by how much V may still move before launches have to wait; 0 or less: not at all. */
int64_t virtual_time_left_ns(const struct vgpu_usage_device *device, int64_t now_ns);

/* Moves V by the cost of a launch of `gpu_ns` (negative to give back), and the end of the work in
 * flight. */
void virtual_time_charge(struct vgpu_usage_device *device, int64_t now_ns, int64_t gpu_ns,
                         uint32_t percent);

/* Moves V alone, by the cost of GPU time that work in flight has had beyond its charge. */
void virtual_time_advance(struct vgpu_usage_device *device, int64_t gpu_ns, uint32_t percent);

/* Moves both by what work turned out to take beyond its charge (negative: less). The end of the
 * work in flight moves no further back than to now, and not at all when it has passed. */
void virtual_time_correct(struct vgpu_usage_device *device, int64_t now_ns, int64_t gpu_ns,
                          uint32_t percent);

/* For time that costs nothing, since nobody else wants it: V is not ahead of the clock. */
void virtual_time_forgive(struct vgpu_usage_device *device, int64_t now_ns);

/* Returns for how long the work in flight is predicted to last. */
int64_t virtual_time_busy_ns(const struct vgpu_usage_device *device, int64_t now_ns);

/* Work lasts longer than was foreseen, until then at least. */
void virtual_time_lasts(struct vgpu_usage_device *device, int64_t until_ns);

/* Nothing of this container is in flight any more. */
void virtual_time_drained(struct vgpu_usage_device *device, int64_t now_ns);

#endif
