/* The clock, sleeping, and futexes: calls that a program makes by number. */
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "interpose.h"

const char sim_sleeps_are_exact = 1; /* for the simulated driver */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!world || clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID ||
        clock == CLOCK_THREAD_CPUTIME_ID)
        return (int)turn_syscall(SYS_clock_gettime, clock, (long)now, 0, 0);
    *now = from_ns(now_ns() + (is_wall(clock) ? realtime_ns : 0));
    return 0;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec shown;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &shown);
    *now = (struct timeval){.tv_sec = shown.tv_sec, .tv_usec = shown.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *now)
{
    struct timespec shown;
    clock_gettime(CLOCK_REALTIME, &shown);
    if (now)
        *now = shown.tv_sec;
    return shown.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    if (own < 0)
        return (int)-turn_syscall(SYS_clock_nanosleep, clock, flags, (long)time, (long)left);
    int64_t until_ns = flags & TIMER_ABSTIME ? moment_ns(clock, time) : now_ns() + to_ns(time);
    if (!turn_wait(world, own, 0, until_ns))
        return 0;
    int64_t left_ns = until_ns - now_ns(); /* a signal has come */
    if (left && !(flags & TIMER_ABSTIME))
        *left = from_ns(left_ns > 0 ? left_ns : 0);
    return EINTR;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    int error = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
    return error ? (int)failed(error) : 0;
}

int usleep(useconds_t us)
{
    struct timespec time = from_ns((int64_t)us * 1000);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

unsigned int sleep(unsigned int seconds)
{
    struct timespec time = {.tv_sec = seconds};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    return 0;
}

int sched_yield(void)
{
    if (own < 0)
        return (int)turn_syscall(SYS_sched_yield, 0, 0, 0, 0);
    turn_look(world, own);
    turn_yield(world, own);
    return 0;
}

static long wait_for_word(const uint32_t *word, int operation, uint32_t expected,
                          const struct timespec *timeout)
{
    bool is_bitset = (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    clockid_t clock = operation & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    int64_t until_ns = !timeout    ? NEVER_NS
                       : is_bitset ? moment_ns(clock, timeout)
                                   : now_ns() + to_ns(timeout);
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != expected)
        return failed(EAGAIN);
    do
        if (!turn_wait(world, own, turn_name(A_WORD, word), until_ns))
            return failed(ETIMEDOUT);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == expected);
    return 0;
}

long syscall(long number, ...)
{
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    int command = (int)a[1] & FUTEX_CMD_MASK;
    if (own >= 0 && number == SYS_futex && (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET))
        return wait_for_word((void *)a[0], (int)a[1], (uint32_t)a[2], (void *)a[3]);
    if (world && number == SYS_futex && command == FUTEX_WAKE)
        turn_wake(world, turn_name(A_WORD, (void *)a[0]), INT_MAX);
    if (own >= 0 && number == SYS_clock_nanosleep) {
        int error = clock_nanosleep((clockid_t)a[0], (int)a[1], (void *)a[2], (void *)a[3]);
        return error ? failed(error) : 0;
    }
    long result;
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer(result);
}
