#include "slice/locks.h"

#include <sched.h>

#include "slice/waiting.h"

/* The holder needs a few dozen instructions more, so the waiter spins first. If the scheduler has put the holder
 * aside, the waiter yields. A holder of lower priority runs only while the waiter sleeps. */
#define SPINS 100
#define YIELDS 1000
#define SLEEP_NS 50000

void short_lock_wait(struct short_lock *lock)
{
    for (int tries = 0; __atomic_load_n(&lock->is_taken, __ATOMIC_RELAXED) != 0 ||
                        __atomic_exchange_n(&lock->is_taken, 1, __ATOMIC_ACQUIRE) != 0;
         tries += tries < SPINS + YIELDS) {
        if (tries < SPINS)
            __builtin_ia32_pause();
        else if (tries < SPINS + YIELDS)
            sched_yield();
        else
            waiting_sleep_until(waiting_now_ns() + SLEEP_NS);
    }
}

#ifdef VGPU_CHECK_LOCKS

#include <stdio.h>
#include <stdlib.h>

#define MOST_HELD 16

static __thread struct {
    const void *lock;
    enum lock_level level;
} held[MOST_HELD];
static __thread int held_count;

static const char *name_of(enum lock_level level)
{
#define LEVEL(name) #name,
    static const char *const names[] = {LOCK_LEVELS(LEVEL)};
#undef LEVEL
    return names[level];
}

static void complain(const char *what, enum lock_level level, enum lock_level under)
{
    fprintf(stderr, "libvgpu: %s %s under %s\n", what, name_of(level), name_of(under));
    abort();
}

void locks_note_taken(const void *lock, enum lock_level level)
{
    for (int i = 0; i < held_count; i++) {
        bool is_in_order =
            held[i].level < level || (held[i].level == LOCK_GRAPH_POOL && level == LOCK_GRAPH_POOL);
        if (held[i].lock == lock)
            complain("lock taken twice:", level, held[i].level);
        if (!is_in_order || held[i].level > LOCK_FORK_GUARD)
            complain("lock out of order:", level, held[i].level);
    }
    if (held_count == MOST_HELD)
        complain("too many locks:", level, held[0].level);
    held[held_count].lock = lock;
    held[held_count++].level = level;
}

void locks_note_given_back(const void *lock)
{
    for (int i = held_count - 1; i >= 0; i--)
        if (held[i].lock == lock) {
            held[i] = held[--held_count];
            return;
        }
    fprintf(stderr, "libvgpu: a lock is given back that this thread does not hold\n");
    abort();
}

void locks_forget(void)
{
    held_count = 0;
}

#endif
