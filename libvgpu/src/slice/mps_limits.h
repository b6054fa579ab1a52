/* Server, share and pinned memory of an MPS client, as its slice says: all three in family mps, the
 * server alone in family vgpu, whose share is held in time.
 *
 * MPS reads three variables when a process calls cuInit and holds it to them from then on. The
 * environment is only what the container was started with, and a program can change it, so the
 * last word is said here, just before. A variable that says the right thing already is left alone:
 * setenv is unsafe with threads that read the environment, and an honest program never needs it.
 *
 * CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is one number for all devices of a process, so it is that of
 * the slice's first device. CUDA_MPS_PINNED_DEVICE_MEM_LIMIT names devices by the numbers the
 * process sees; a slice lists its devices in that order. A program that reorders them with
 * CUDA_VISIBLE_DEVICES mixes up MPS's limits and not ours: the ledger holds memory, too.
 *
 * What a process began with is written into its slot, so that the host can tell what waits for its
 * next start. No other state. */
#ifndef VGPU_MPS_LIMITS_H
#define VGPU_MPS_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/contract.h"

/* Sets those variables that differ from `limits` (its first `device_count` devices). Where nothing
 * was mounted by the host (not `is_managed`), a pipe directory that is set already stands: whoever
 * started the process knows where it lies. */
void mps_limits_apply(const void *limits, uint32_t device_count, bool is_managed);

/* Writes what this process began with into the slot that it has just claimed. */
void mps_limits_tell(struct vgpu_usage_slot *slot);

#endif
