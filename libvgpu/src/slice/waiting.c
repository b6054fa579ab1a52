#include "slice/waiting.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000

int64_t waiting_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

static int sharpen(void)
{
    int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1ul);
    return slack;
}

static void blunt(int slack)
{
    if (slack > 0)
        prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
}

void waiting_on_word(const uint32_t *word, uint32_t expected, int64_t until_ns)
{
    struct timespec until = {until_ns / SECOND_NS, until_ns % SECOND_NS};
    int saved_errno = errno;
    int slack = sharpen();
    /* The bitset form, since it takes an absolute time. */
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, &until, NULL, FUTEX_BITSET_MATCH_ANY);
    blunt(slack);
    errno = saved_errno;
}

void waiting_sleep_until(int64_t until_ns)
{
    int slack = sharpen();
    struct timespec until = {until_ns / SECOND_NS, until_ns % SECOND_NS};
    int saved_errno = errno;
    /* Not clock_nanosleep: that is a cancellation point, and the sleeper has the ticket lock. */
    while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0 &&
           errno == EINTR)
        continue;
    errno = saved_errno;
    blunt(slack);
}

bool ticket_lock_is_busy(const struct ticket_lock *lock)
{
    return __atomic_load_n(&lock->next, __ATOMIC_ACQUIRE) !=
           __atomic_load_n(&lock->serving, __ATOMIC_ACQUIRE);
}

void ticket_lock_enter(struct ticket_lock *lock)
{
    uint32_t mine = __atomic_fetch_add(&lock->next, 1, __ATOMIC_ACQ_REL);
    for (;;) {
        uint32_t serving = __atomic_load_n(&lock->serving, __ATOMIC_ACQUIRE);
        if (serving == mine)
            return;
        syscall(SYS_futex, &lock->serving, FUTEX_WAIT_PRIVATE, serving, NULL, NULL, 0);
    }
}

void ticket_lock_leave(struct ticket_lock *lock)
{
    __atomic_fetch_add(&lock->serving, 1, __ATOMIC_ACQ_REL);
    syscall(SYS_futex, &lock->serving, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
