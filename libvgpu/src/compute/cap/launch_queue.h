/* Launches that wait for a device, as the processes of a container say it in `usage`: who came first, and how
 * long they waited. Pure: time comes as an argument (CLOCK_MONOTONIC). */
#ifndef VGPU_LAUNCH_QUEUE_H
#define VGPU_LAUNCH_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#ifndef VGPU_CFFI
#include "vgpu/contract.h"
#endif

/* ---- who came first, among the processes of one container ----
 *
 * Within a process a ticket lock (waiting.h) keeps the order of arrival, and whoever is served next there
 * says here since when it waits. A launch goes after those of other processes that came before it.
 * Whoever was served goes on for ARRIVAL_SERVED_NS without a look at those who wait: handing over
 * costs the GPU tens of microseconds, too much for each small kernel. What a process says counts
 * until it meant to look again and a little longer, so one that is killed or stopped holds nobody
 * up for more than ARRIVAL_MOST_NS. One word per device says until when anybody may be waiting:
 * alone, a launch reads nothing else.
 *
 * Atomics on single words; a process writes its own slot and the device's word. A tenant that writes nonsense
 * holds up its own container only. */

#define ARRIVAL_GRACE_NS 5000000 /* a busy host wakes a thread so late now and then */
#define ARRIVAL_SERVED_NS 2000000
#define ARRIVAL_MOST_NS 30000000 /* what says more is not believed */

/* Somebody of this slot's process waits since then, and looks again at `until_ns`. */
void arrival_wait(void *usage, uint32_t device, uint32_t slot, int64_t since_ns, int64_t until_ns);

/* Nobody of it waits in this order. */
void arrival_leave(void *usage, uint32_t device, uint32_t slot);

/* Its waiter was served. */
void arrival_serve(void *usage, uint32_t device, uint32_t slot, int64_t now_ns);

/* Who goes on, of those who were served a moment ago: this slot's, another's, no one's. */
enum arrival_who { ARRIVAL_NOBODY, ARRIVAL_OWN, ARRIVAL_OTHER };
enum arrival_who arrival_served(void *usage, uint32_t device, uint32_t slot, int64_t now_ns);

/* True while somebody of another process waits who came before `since_ns`. */
bool arrival_is_behind(void *usage, uint32_t device, uint32_t slot, int64_t since_ns,
                       int64_t now_ns);

/* ---- how long they waited ----
 *
 * Counted by powers of two: bucket 0 counts waits below WAIT_HISTOGRAM_FIRST_NS, bucket i those from
 * WAIT_HISTOGRAM_FIRST_NS * 2^(i-1) to twice that, the last one all longer ones too.
 *
 * 16 buckets of 16 bits are all that there is place for. When one is full, all are halved: what is left
 * is the recent past with the old behind it, which is what a percentile is asked for. A percentile
 * is a place within a bucket, so it is right to within a factor of two.
 *
 * Serialised by its caller (throttle.c holds the device's lock); readers see each count whole. */

#define WAIT_HISTOGRAM_FIRST_NS 65536

/* Counts one launch that waited for `waited_ns`. */
void wait_histogram_note(struct vgpu_usage_slot_device *counters, int64_t waited_ns);

#endif
