/* Memory that was not made stream-ordered and is freed in a stream's order all the same: the driver
 * keeps it until the stream has come that far, and so it stays charged.
 *
 * An event is recorded behind the free. What was freed stands in the map of allocations under that
 * event, so that it ends with the stream's context at the latest; the events are looked at after
 * waits, at the next such free, and before anything is refused. One mutex guards the few events and
 * is held across the driver's calls about them, none of which waits. A forked child starts with
 * none. */
#ifndef VGPU_DEFERRED_FREE_H
#define VGPU_DEFERRED_FREE_H

#include <stdbool.h>

#include "memory/ledger/allocation_map.h"
#include "vgpu/cuda_api.h"

/* `taken` was freed on `stream`: its charge goes when that is done. */
void deferred_free_put(const struct allocation *taken, CUstream stream);

/* Gives back what is done by now. */
void deferred_free_look(void);

/* Around a call that may end a context, and our events in it: these are left alone meanwhile. When
 * it has ended, what is left of it ends with its other memory. */
void deferred_free_hold_context(CUcontext context);
void deferred_free_let_go_context(CUcontext context, bool has_ended);

/* For fork.c. */
void deferred_free_after_fork(void);

#endif
