/* Which launches of a batch are on their way to the driver: charged, but not handed to it yet.
 *
 * Threads launch side by side, and an end that one of them records must come behind the launches of the
 * others, or these would run unmeasured. So a batch is not ended while any launch of it is on its way. Who
 * would end it has it end behind them, and the thread that hands over the last one does so.
 *
 * Serialised by its caller (the lock of `struct flight`). */
#ifndef VGPU_HANDOVER_H
#define VGPU_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/measure/batch.h"
#include "vgpu/contract.h"

/* Of each thread. A call may launch on several devices at once. */
struct handover {
    uint64_t batches[VGPU_MAX_DEVICES]; /* that its launch on its way is in; 0: in none */
    uint64_t key;                       /* of its kind */
};

/* The calling thread's, whose address is the thread's name (handover_own.c). */
struct handover *handover_own(void);

/* The calling thread is about to launch on that device, in that batch; NULL: in none. */
void handover_begin(uint32_t device, struct batch *batch);

/* Its launch has gone. False where that was in another batch than this one, which may be NULL. */
bool handover_end(uint32_t device, struct batch *batch);

#endif
