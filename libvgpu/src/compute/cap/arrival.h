/* Who came first, among the processes of one container that wait to launch on a device.
 *
 * Within a process turns (waiting.h) keep the order of arrival, and whoever is served next there
 * says here since when it waits. A launch goes after those of other processes that came before it.
 * Whoever was served goes on for ARRIVAL_SERVED_NS without a look at those who wait: handing over
 * costs the GPU tens of microseconds, too much for each small kernel. What a process says counts
 * until it meant to look again and a little longer, so one that is killed or stopped holds nobody
 * up for more than ARRIVAL_MOST_NS. One word per device says until when anybody may be waiting:
 * alone, a launch reads nothing else.
 *
 * Pure: time comes as an argument (CLOCK_MONOTONIC). Atomics on single words; a process writes its
 * own slot and the device's word. A tenant that writes nonsense holds up its own container only. */
#ifndef VGPU_ARRIVAL_H
#define VGPU_ARRIVAL_H

#include <stdbool.h>
#include <stdint.h>

#define ARRIVAL_GRACE_NS 5000000 /* a busy host wakes a thread so late now and then */
#define ARRIVAL_SERVED_NS 2000000
#define ARRIVAL_MOST_NS 30000000 /* what says more is not believed */

/* Somebody of this slot's process waits since then, and looks again at `until_ns`. */
void arrival_wait(void *usage, uint32_t device, uint32_t slot, int64_t since_ns, int64_t until_ns);

/* Nobody of it waits in this order. */
void arrival_leave(void *usage, uint32_t device, uint32_t slot);

/* Its waiter was served. */
void arrival_serve(void *usage, uint32_t device, uint32_t slot, int64_t now_ns);

/* Whose turn it is, of those who were served a moment ago: this slot's, another's, no one's. */
enum arrival_turn { ARRIVAL_NOBODY, ARRIVAL_OWN, ARRIVAL_OTHER };
enum arrival_turn arrival_served(void *usage, uint32_t device, uint32_t slot, int64_t now_ns);

/* True while somebody of another process waits who came before `since_ns`. */
bool arrival_is_behind(void *usage, uint32_t device, uint32_t slot, int64_t since_ns,
                       int64_t now_ns);

#endif
