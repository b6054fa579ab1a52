/* What the parts of the preloaded library share. Each part takes over one kind of call: interpose_clock.c,
 * interpose_locks.c, interpose_poll.c,
 * interpose_files.c and interpose_programs.c, which also says how it is used. */
#ifndef VGPU_TEST_INTERPOSE_H
#define VGPU_TEST_INTERPOSE_H

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <time.h>

#include "real.h"
#include "turn.h"

#define SECOND_NS 1000000000ll
#define HIDDEN __attribute__((visibility("hidden")))

extern HIDDEN struct turn_world *world; /* NULL: this program takes no part */
extern HIDDEN __thread int own;         /* the thread's place; -1: it takes no part */

void find_locks(void) HIDDEN;
void find_files(void) HIDDEN;
void find_programs(void) HIDDEN;

static inline void find(void *function, const char *name, const char *version)
{
    *(void **)function = dlvsym(RTLD_NEXT, name, version);
}

static inline int64_t to_ns(const struct timespec *time)
{
    return time->tv_sec * SECOND_NS + time->tv_nsec;
}

static inline struct timespec from_ns(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}

static inline int64_t now_ns(void)
{
    return own >= 0 ? turn_look(world, own) : __atomic_load_n(&world->now_ns, __ATOMIC_ACQUIRE);
}

/* CLOCK_REALTIME is so much later: every world begins on the first of January 2026. */
static const int64_t realtime_ns = 1767225600 * SECOND_NS - BEGINNING_NS;

static inline bool is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

/* The world's time of a moment on that clock. */
static inline int64_t moment_ns(clockid_t clock, const struct timespec *time)
{
    return to_ns(time) - (is_wall(clock) ? realtime_ns : 0);
}

static inline long failed(int error)
{
    errno = error;
    return -1;
}

/* What a system call made by hand answers, as libc gives it. */
static inline long answer(long result)
{
    return result < 0 && result > -4096 ? failed((int)-result) : result;
}

/* An object's name in this process: its addresses are nobody else's. */
static inline uint64_t name_of(const void *object)
{
    return (uint64_t)(uintptr_t)object ^ (uint64_t)real_pid() << 48;
}

/* --- waiting for files, in interpose_poll.c --- */

/* Waits until `is_so` or the time has come: asks at once, and whenever a file has changed. */
bool wait_for_files(bool (*is_so)(void *), void *argument, int64_t until_ns) HIDDEN;
void files_changed(void) HIDDEN;

/* Waits until a call on that file would not block, where it would. */
void await_file(int file, short events) HIDDEN;
void forget_timer(int file) HIDDEN;

#endif
