/* Keeps this container's GPU time to its cap: charge an estimate at launch, correct it by
 * measured time, carry the error as debt (virtual_time.h), and bound the work in flight so that a
 * wrong estimate cannot run away.
 *
 * A launch may start while the container's virtual time is not ahead of the clock, at most
 * FLIGHT_MOST_NS of estimated work is on the GPU unmeasured, and its kind of launch has been
 * measured once; otherwise its thread waits, in order of arrival. About every
 * FLIGHT_BATCH_NS of estimated work a pair of events measures what really ran (timing.h).
 *
 * Where an arbiter hands out the device by turns (window.h), a launch also waits for the
 * container's window, and gives it back when it does not fit into the rest of it.
 *
 * Per device one lock, held for bookkeeping and our own driver calls, never while sleeping and
 * never during the program's call. Where one of ours waits under it for room in the driver, others go on
 * without: charged by price, and what is measured on a stream that ends meanwhile is given up. A child of a fork starts with nothing in flight. */
#ifndef VGPU_THROTTLE_H
#define VGPU_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/cap/launch.h"
#include "vgpu/cuda_api.h"

/* Before a launch whose device, kind and stream are known: waits until it may start and charges it. A part of
 * a collective is charged and does not wait, since others wait for it on the GPU (collective_debt.h). One that is
 * measured gets a batch, and throttle_after is to be called once the driver has taken it. Further ones of
 * the same kind may find themselves prepaid (budget.h). */
void throttle_before(struct launch *launch);

/* After a launch that has a batch: tells when it began, or ends its measurement behind it. */
void throttle_after(const struct launch *launch);

/* Before the program waits for the GPU, or has a stream wait for something else: the pause that follows must not be
 * measured. Returns what throttle_after_wait is to be told, once it has waited. */
int64_t throttle_before_wait(void);
void throttle_after_wait(int64_t began_ns);

/* That stream is through with all that this thread launched: a moment to measure what is lacking. */
void throttle_found_idle(CUstream stream);

/* The program has asked whether the GPU is done, and it is not. If it has asked before, and nothing was launched
 * since, the GPU had work of the program all the while: it waited. Ends no measurement, since programs ask between
 * launches, too. */
void throttle_asked_in_vain(void);

/* Behind capture_begins, before the driver's call: what is measured ends here, and nothing prepaid goes into the
 * capture. A thread that is about to record an event has done so on return, and none does until capture_begun. */
void throttle_before_capture(void);

/* A stream is about to be destroyed: what is measured on it ends here, while the driver knows it. */
void throttle_forget_stream(CUstream stream);

/* Code has been unloaded: what a function was known to take may be another one's from now on. */
void throttle_forget_functions(void);

/* A context is about to end, and our events in it: waits for what they measure. Without any lock
 * held. */
void throttle_forget_context(CUcontext context);

/* For fork.c. */
void throttle_after_fork(void);

#endif
