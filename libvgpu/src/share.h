/* The arithmetic of a compute cap: one virtual time per container and device, in `usage`.
 *
 * The generic cell rate algorithm: every launch moves the virtual time V ahead by its GPU time
 * divided by the share; work may start while V is not ahead of the clock. Corrections by measured
 * time move V either way, so an error of an estimate is debt or credit and the long-run share is
 * exact whatever the kernels' length. No refill, no lock: V is one atomic word that all processes
 * of the container share.
 *
 * Credit is what a tenant may catch up after a pause. It is clipped to SHARE_BURST_NS, and only for
 * time in which the tenant neither waited nor had work in flight; clipping at other moments would
 * take work away from long kernels.
 *
 * Pure: time comes as an argument (CLOCK_MONOTONIC, nanoseconds). Atomic by itself. */
#ifndef VGPU_SHARE_H
#define VGPU_SHARE_H

#include <stdint.h>
#ifndef VGPU_CFFI
#include "vgpu/contract.h"
#endif

#define SHARE_BURST_NS 50000000
/* V may be this far ahead before a launch sleeps: saves small synchronous kernels a sleep each. */
#define SHARE_SLACK_NS 1000000

/* Returns what `gpu_ns` of GPU time cost in virtual time under a cap of `percent` (1..100). */
int64_t share_cost_ns(int64_t gpu_ns, uint32_t percent);

/* To be called when the cap may have changed: what V is ahead of the clock (or behind) was counted
 * in the old one, and is converted once, by whichever process comes first. */
void share_set_percent(struct vgpu_usage_device *device, int64_t now_ns, uint32_t percent);

/* To be called when a launch enters, before it waits: clips the credit of a pause that ended now.
 */
void share_enter(struct vgpu_usage_device *device, int64_t now_ns);

/* Returns how long a launch must wait: 0 while V is at most `slack_ns` ahead, else until V is
 * reached. */
int64_t share_wait_ns(const struct vgpu_usage_device *device, int64_t now_ns, int64_t slack_ns);

/* Returns by how much V may still move before launches have to wait; 0 or less: not at all. */
int64_t share_room_ns(const struct vgpu_usage_device *device, int64_t now_ns);

/* Moves V by the cost of `gpu_ns` (negative to give back), and the end of the work in flight. */
void share_charge(struct vgpu_usage_device *device, int64_t now_ns, int64_t gpu_ns,
                  uint32_t percent);

#endif
