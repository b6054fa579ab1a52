/* The charge of a context while the driver makes it: reserved before by the best estimate there is,
 * corrected afterwards to what was measured (context_cost.h). */
#ifndef VGPU_CONTEXT_CHARGE_H
#define VGPU_CONTEXT_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/contexts/context_cost.h"
#include "memory/ledger/charge.h"

/* Contexts are few and slow to make: one lock serialises making, ending and setting the limits of
 * them, so that a measurement sees one at a time. Around all below but what ends and counts.
 *
 * A thread may take it again: within such a call the driver may call tools back, which use the driver. */
void contexts_lock(void);
void contexts_unlock(void);

struct context_charge {
    struct charge charge;
    bool is_first;   /* this process held nothing on the device */
    bool is_known;   /* what the charge was reserved by is an estimate */
    bool is_sampled; /* otherwise another process has just measured */
    bool is_rough;   /* others may have a part in what was measured */
    bool is_green;
    struct context_cost_sample before;
    uint64_t charge_count; /* of this process's charges on the device, after its own */
};

/* Before the driver makes a context: CUDA_SUCCESS, or what the hook returns. */
CUresult context_charge_begin(struct context_charge *opening, CUdevice device);

/* The same of a green context, when its primary one is there. It takes a small part of what a
 * context does (4 MiB on an H100 where that takes 518), so each is measured. Until one of this
 * process was, the estimate of a whole context is reserved, which bounds it: to make one and undo
 * it would be over the limit for a moment. The estimate stands where NVML does not tell this
 * process, or other threads allocated meanwhile. */
CUresult context_charge_begin_green(struct context_charge *opening, CUdevice device);

/* After the driver answered `result`. False when the context does not fit after all: end it, then
 * call context_charge_undone, so that nothing is free while it is still there. */
bool context_charge_end(struct context_charge *opening, CUresult result);
void context_charge_undone(struct context_charge *opening, CUcontext context);

/* The end of a context's charge, for those that are kept in the allocation map: it is their owner. */
extern struct charge_owner context_charge_owner;
void context_charge_ended(const struct charge *charge);

/* The contexts of this process on a device; whether one is being made, which is reserved and not there. */
uint32_t context_charge_count(uint32_t device);
bool context_charge_is_under_way(uint32_t device);

/* For fork.c. */
void context_charge_after_fork(void);

/* Of one that did not fit: whether to make it once more, since another container's allocation may
 * have been taken for it. For `tries` that were made. */
bool context_charge_tries_again(const struct context_charge *opening, int tries);

#endif
