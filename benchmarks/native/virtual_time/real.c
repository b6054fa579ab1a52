#include "real.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* In real time: how often a thread that waits for its turn looks whether who has it was killed. */
#define LOOK_FOR_THE_DEAD_S 1

long turn_syscall(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

bool real_wait(uint32_t *word, uint32_t value)
{
    struct timespec most = {.tv_sec = LOOK_FOR_THE_DEAD_S};
    return turn_syscall(SYS_futex, (long)word, FUTEX_WAIT, (long)value, (long)&most) != -ETIMEDOUT;
}

static int32_t own_pid; /* 0: to be asked */

int32_t real_pid(void)
{
    if (own_pid == 0)
        own_pid = (int32_t)turn_syscall(SYS_getpid, 0, 0, 0, 0);
    return own_pid;
}

void real_forked(void)
{
    own_pid = 0;
}

void real_wake(uint32_t *word)
{
    turn_syscall(SYS_futex, (long)word, FUTEX_WAKE, 1, 0);
}

void turn_lock(struct turn_world *world)
{
    uint32_t seen = 0;
    if (__atomic_compare_exchange_n(&world->lock, &seen, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return;
    while (__atomic_exchange_n(&world->lock, 2, __ATOMIC_ACQUIRE) != 0)
        real_wait(&world->lock, 2);
}

void turn_unlock(struct turn_world *world)
{
    if (__atomic_exchange_n(&world->lock, 0, __ATOMIC_RELEASE) == 2)
        real_wake(&world->lock);
}

bool real_has_ended(int32_t pid, long most_ms)
{
    long file = turn_syscall(SYS_pidfd_open, pid, 0, 0, 0);
    if (file < 0)
        return true;
    struct pollfd ended = {.fd = (int)file, .events = POLLIN};
    bool is_over = turn_syscall(SYS_poll, (long)&ended, 1, most_ms, 0) == 1;
    turn_syscall(SYS_close, file, 0, 0, 0);
    return is_over;
}

void real_raise(int number)
{
    long thread = turn_syscall(SYS_gettid, 0, 0, 0, 0);
    turn_syscall(SYS_tgkill, real_pid(), thread, number, 0);
}

bool real_is_deadly(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL &&
           number != SIGCHLD && number != SIGWINCH && number != SIGURG;
}

struct turn_world *turn_map(const char *path, const char *chance)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct turn_world *world = MAP_FAILED;
    if (file >= 0 && flock(file, LOCK_EX) == 0 && ftruncate(file, sizeof *world) == 0)
        world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (world != MAP_FAILED && world->now_ns == 0) {
        *world = (struct turn_world){.now_ns = BEGINNING_NS, .next_ns = NEVER_NS, .running = -1};
        if (chance)
            sscanf(chance, "%" SCNu64 " %" SCNu32 " %" SCNu32 " %" SCNu32, &world->seed,
                   &world->one_in, &world->late_ns, &world->slack_ns);
    }
    flock(file, LOCK_UN); /* which the mapping would keep */
    close(file);
    return world == MAP_FAILED ? NULL : world;
}
