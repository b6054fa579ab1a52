#include "slice/locks.h"

#ifdef VGPU_CHECK_LOCKS

#include <stdio.h>
#include <stdlib.h>

#define MOST_HELD 16

static __thread struct {
    const pthread_mutex_t *lock;
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

void locks_note_taken(const pthread_mutex_t *lock, enum lock_level level)
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

void locks_note_given_back(const pthread_mutex_t *lock)
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
