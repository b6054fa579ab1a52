/*
 * Events that several processes have (CU_EVENT_INTERPROCESS). What was recorded last, by whomever,
 * stands on a page that all of them map; each looks at the device's timeline for itself. Such an
 * event has no times.
 */
#ifndef VGPU_SIM_EVENT_IPC_H
#define VGPU_SIM_EVENT_IPC_H

#include "driver.h"

struct shared_event;

struct shared_event *event_make_shared(struct CUctx_st *context); /* a new page; NULL: no memory */
void event_end_shared(struct shared_event *shared);
void event_publish(struct shared_event *shared, struct sim_origin origin);
/* What was recorded last, with place 0 where nothing was, and the device of it. */
struct sim_origin event_origin(const struct shared_event *shared);

#endif
