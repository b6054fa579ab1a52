/* Waiting for files: poll, epoll and timers. Who waits is told when anybody in the world changes a file, and asks
 * again. A timer is an eventfd here, to which whoever waits writes when the time has come. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "interpose.h"

#define MOST_TIMERS 16
#define MS_NS 1000000ll
#define OUTSIDE_MS 1 /* in real time: how often a thread that waits for another world asks */

struct timer {
    int file; /* 0: none */
    clockid_t clock;
    int64_t due_ns;
    int64_t every_ns;
};

static struct timer timers[MOST_TIMERS]; /* who has the turn writes it */

/* --- waiting --------------------------------------------------------------------------------- */

/* Rings the timers that are due; returns when the next one is. */
static int64_t ring_timers(int64_t at_ns)
{
    int64_t next_ns = NEVER_NS;
    for (struct timer *timer = timers; timer < timers + MOST_TIMERS; timer++) {
        if (timer->file == 0 || timer->due_ns == 0)
            continue;
        if (timer->due_ns <= at_ns) {
            uint64_t one = 1;
            turn_syscall(SYS_write, timer->file, (long)&one, sizeof one, 0);
            timer->due_ns = timer->every_ns ? timer->due_ns + timer->every_ns : 0;
        }
        if (timer->due_ns != 0 && timer->due_ns < next_ns)
            next_ns = timer->due_ns;
    }
    return next_ns;
}

bool wait_for_files(bool (*is_so)(void *), void *argument, int64_t until_ns)
{
    for (;;) {
        int64_t at_ns = now_ns();
        int64_t next_ns = ring_timers(at_ns);
        if (is_so(argument))
            return true;
        if (at_ns >= until_ns)
            return false;
        __atomic_add_fetch(&world->file_waiters, 1, __ATOMIC_RELAXED);
        turn_wait(world, own, A_FILE, next_ns < until_ns ? next_ns : until_ns);
        __atomic_sub_fetch(&world->file_waiters, 1, __ATOMIC_RELAXED);
        if (!turn_is_alone(world, own))
            continue;
        turn_leave(world, own);
        while (!is_so(argument))
            turn_syscall(SYS_poll, 0, 0, OUTSIDE_MS, 0);
        turn_return(world, own);
        return true;
    }
}

void files_changed(void)
{
    if (world && __atomic_load_n(&world->file_waiters, __ATOMIC_RELAXED))
        turn_wake(world, A_FILE, INT_MAX);
}

struct look {
    struct pollfd *files;
    nfds_t count;
    long result;
};

static bool is_ready(void *argument)
{
    struct look *look = argument;
    look->result = turn_syscall(SYS_poll, (long)look->files, (long)look->count, 0, 0);
    return look->result != 0;
}

void await_file(int file, short events)
{
    struct pollfd ready = {.fd = file, .events = events};
    struct look look = {&ready, 1, 0};
    /* A handler of a signal runs in a thread that may not have the turn. */
    if (own >= 0 && world->running == own && !is_ready(&look) &&
        !(turn_syscall(SYS_fcntl, file, F_GETFL, 0, 0) & O_NONBLOCK))
        wait_for_files(is_ready, &look, NEVER_NS);
}

/* --- poll and epoll -------------------------------------------------------------------------- */

static int poll_until(struct pollfd *files, nfds_t count, int64_t until_ns)
{
    struct look look = {files, count, 0};
    wait_for_files(is_ready, &look, until_ns);
    return (int)answer(look.result);
}

static int64_t until(int64_t wait_ns)
{
    return wait_ns < 0 ? NEVER_NS : now_ns() + wait_ns;
}

int poll(struct pollfd *files, nfds_t count, int wait_ms)
{
    if (own < 0)
        return (int)answer(turn_syscall(SYS_poll, (long)files, (long)count, wait_ms, 0));
    return poll_until(files, count, until(wait_ms * MS_NS));
}

int ppoll(struct pollfd *files, nfds_t count, const struct timespec *wait, const sigset_t *mask)
{
    (void)mask;
    if (own < 0)
        return poll(files, count, wait ? (int)(to_ns(wait) / MS_NS) : -1);
    return poll_until(files, count, until(wait ? to_ns(wait) : -1));
}

int __poll_chk(struct pollfd *files, nfds_t count, int wait_ms, size_t room)
{
    (void)room;
    return poll(files, count, wait_ms);
}

int __ppoll_chk(struct pollfd *files, nfds_t count, const struct timespec *wait,
                const sigset_t *mask, size_t room)
{
    (void)room;
    return ppoll(files, count, wait, mask);
}

struct epoll_look {
    int file;
    struct epoll_event *events;
    int most;
    long result;
};

static bool has_events(void *argument)
{
    struct epoll_look *look = argument;
    look->result = turn_syscall(SYS_epoll_wait, look->file, (long)look->events, look->most, 0);
    return look->result != 0;
}

int epoll_wait(int file, struct epoll_event *events, int most, int wait_ms)
{
    if (own < 0)
        return (int)answer(turn_syscall(SYS_epoll_wait, file, (long)events, most, wait_ms));
    struct epoll_look look = {file, events, most, 0};
    wait_for_files(has_events, &look, until(wait_ms * MS_NS));
    return (int)answer(look.result);
}

int epoll_pwait(int file, struct epoll_event *events, int most, int wait_ms, const sigset_t *mask)
{
    (void)mask;
    return epoll_wait(file, events, most, wait_ms);
}

/* --- timers ---------------------------------------------------------------------------------- */

static struct timer *timer_of(int file)
{
    for (struct timer *timer = timers; timer < timers + MOST_TIMERS; timer++)
        if (timer->file == file)
            return timer;
    return NULL;
}

void forget_timer(int file)
{
    struct timer *timer = own >= 0 && file > 0 ? timer_of(file) : NULL;
    if (timer)
        timer->file = 0;
}

int timerfd_create(int clock, int flags)
{
    struct timer *timer = timer_of(0);
    if (own < 0 || !timer)
        return (int)answer(turn_syscall(SYS_timerfd_create, clock, flags, 0, 0));
    int file = eventfd(0, flags); /* whose flags are the same ones */
    if (file >= 0)
        *timer = (struct timer){.file = file, .clock = clock};
    return file;
}

int timerfd_settime(int file, int flags, const struct itimerspec *time, struct itimerspec *before)
{
    struct timer *timer = own >= 0 ? timer_of(file) : NULL;
    if (!timer)
        return (int)answer(
            turn_syscall(SYS_timerfd_settime, file, flags, (long)time, (long)before));
    struct pollfd rung = {.fd = file, .events = POLLIN};
    uint64_t count;
    if (turn_syscall(SYS_poll, (long)&rung, 1, 0, 0) == 1)
        turn_syscall(SYS_read, file, (long)&count, sizeof count, 0);
    int64_t value_ns = to_ns(&time->it_value);
    timer->every_ns = to_ns(&time->it_interval);
    timer->due_ns = value_ns == 0               ? 0
                    : flags & TFD_TIMER_ABSTIME ? moment_ns(timer->clock, &time->it_value)
                                                : now_ns() + value_ns;
    files_changed();
    return 0;
}
