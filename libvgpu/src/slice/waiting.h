/* Waiting on the launch path: exact sleeps, and a lock that is had in the order of arrival.
 *
 * A timed sleep is late by the thread's timer slack (50 µs by default), so the slack is 1 ns while
 * we sleep and put back afterwards. A ticket lock is a counter and a futex: whoever came first goes
 * first, whatever the scheduler does. Nothing here is held while a lock of ours is. */
#ifndef VGPU_WAITING_H
#define VGPU_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct ticket_lock {
    uint32_t next;
    uint32_t serving;
};

int64_t waiting_now_ns(void); /* CLOCK_MONOTONIC */

/* Sleeps until then. */
void waiting_sleep_until(int64_t until_ns);

/* Sleeps until then, or until *word is no longer `expected` and its writer wakes us. The word may
 * lie in memory that other processes write. */
void waiting_on_word(const uint32_t *word, uint32_t expected, int64_t until_ns);

/* True while somebody has it or waits for it. */
bool ticket_lock_is_busy(const struct ticket_lock *lock);

/* Takes a number; returns when it is the caller's. */
void ticket_lock_enter(struct ticket_lock *lock);

/* Lets the next one go. */
void ticket_lock_leave(struct ticket_lock *lock);

#endif
