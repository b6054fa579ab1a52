/* The time and the waits of a program, taken over: preload this library and name the world's file in
 * VIRTUAL_TIME_FILE; VIRTUAL_TIME_CHANCE says how it is made (turn.h). What libc does inside itself stays what it is, and so does every wait of a thread that
 * takes no part (one that has ended and runs its destructors). Calls that may block for other reasons than
 * time leave the world while they do. Not taken over: signals, timers, robust locks of killed holders. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "turn.h"

#define SECOND_NS 1000000000ll
#define A_LOCK 1 /* what those wait for who wait for a lock; a lock may lie in several programs */
#define A_WORD 2 /* the same for a futex */

extern long turn_syscall(long number, long a, long b, long c, long d);

const char sim_sleeps_are_exact = 1; /* for the simulated driver */

static struct turn_world *world;
/* CLOCK_REALTIME is so much later: every world begins on the first of January 2026. */
static const int64_t realtime_ns = 1767225600 * SECOND_NS - BEGINNING_NS;
static __thread int own = -1;
static __thread int childs; /* place of the child of a fork that is under way */

static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static int (*real_join)(pthread_t, void **);
static int (*real_lock)(pthread_mutex_t *);
static int (*real_unlock)(pthread_mutex_t *);
static int (*real_timedlock)(pthread_mutex_t *, const struct timespec *);
static int (*real_cond_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_signal)(pthread_cond_t *);
static int (*real_broadcast)(pthread_cond_t *);
static int (*real_sem_wait)(sem_t *);
static int (*real_sem_post)(sem_t *);

static void find(void *function, const char *name, const char *version)
{
    *(void **)function = dlvsym(RTLD_NEXT, name, version);
}

static void find_all(void)
{
    find(&real_create, "pthread_create", "GLIBC_2.34");
    find(&real_join, "pthread_join", "GLIBC_2.34");
    find(&real_lock, "pthread_mutex_lock", "GLIBC_2.2.5");
    find(&real_unlock, "pthread_mutex_unlock", "GLIBC_2.2.5");
    find(&real_timedlock, "pthread_mutex_timedlock", "GLIBC_2.34");
    find(&real_cond_wait, "pthread_cond_wait", "GLIBC_2.3.2");
    find(&real_cond_timedwait, "pthread_cond_timedwait", "GLIBC_2.3.2");
    find(&real_signal, "pthread_cond_signal", "GLIBC_2.3.2");
    find(&real_broadcast, "pthread_cond_broadcast", "GLIBC_2.3.2");
    find(&real_sem_wait, "sem_wait", "GLIBC_2.34");
    find(&real_sem_post, "sem_post", "GLIBC_2.34");
}

static int64_t to_ns(const struct timespec *time)
{
    return time->tv_sec * SECOND_NS + time->tv_nsec;
}

static struct timespec from_ns(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}

static int64_t now_ns(void)
{
    return own >= 0 ? turn_look(world, own) : __atomic_load_n(&world->now_ns, __ATOMIC_ACQUIRE);
}

static bool is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

/* The world's time of a moment on that clock. */
static int64_t moment_ns(clockid_t clock, const struct timespec *time)
{
    return to_ns(time) - (is_wall(clock) ? realtime_ns : 0);
}

/* --- the clock ------------------------------------------------------------------------------- */

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

/* --- sleeping -------------------------------------------------------------------------------- */

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    if (own < 0)
        return (int)-turn_syscall(SYS_clock_nanosleep, clock, flags, (long)time, (long)left);
    int64_t until_ns = flags & TIMER_ABSTIME ? moment_ns(clock, time) : now_ns() + to_ns(time);
    turn_wait(world, own, 0, until_ns);
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
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

/* --- system calls made by number ------------------------------------------------------------- */

static long failed(int error)
{
    errno = error;
    return -1;
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
        if (!turn_wait(world, own, A_WORD, until_ns))
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
        turn_wake(world, A_WORD, INT_MAX);
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
    return result < 0 && result > -4096 ? failed((int)-result) : result;
}

/* --- locks, conditions, semaphores ----------------------------------------------------------- */

static int lock_until(pthread_mutex_t *mutex, int64_t until_ns)
{
    int error;
    while ((error = pthread_mutex_trylock(mutex)) == EBUSY) {
        __atomic_add_fetch(&world->lock_waiters, 1, __ATOMIC_RELAXED);
        bool woken = turn_wait(world, own, A_LOCK, until_ns);
        __atomic_sub_fetch(&world->lock_waiters, 1, __ATOMIC_RELAXED);
        if (!woken)
            return ETIMEDOUT;
    }
    return error;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    return own >= 0 ? lock_until(mutex, NEVER_NS) : real_lock(mutex);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *time)
{
    return own >= 0 ? lock_until(mutex, moment_ns(CLOCK_REALTIME, time))
                    : real_timedlock(mutex, time);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int error = real_unlock(mutex);
    if (world && __atomic_load_n(&world->lock_waiters, __ATOMIC_RELAXED))
        turn_wake(world, A_LOCK, INT_MAX);
    return error;
}

/* Of this process: its addresses are nobody else's. */
static uint64_t name_of(const void *object)
{
    return (uint64_t)(uintptr_t)object ^ (uint64_t)turn_syscall(SYS_getpid, 0, 0, 0, 0) << 48;
}

static int wait_for_condition(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t until_ns)
{
    pthread_mutex_unlock(mutex);
    bool woken = turn_wait(world, own, name_of(condition), until_ns);
    int error = pthread_mutex_lock(mutex);
    return error ? error : woken ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    return own >= 0 ? wait_for_condition(condition, mutex, NEVER_NS)
                    : real_cond_wait(condition, mutex);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *time)
{
    if (own < 0)
        return real_cond_timedwait(condition, mutex, time);
    return wait_for_condition(condition, mutex, moment_ns(clock, time));
}

/* Which clock it means is in the condition, where only libc reads it. The two are far apart. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *time)
{
    bool is_wall_time = own >= 0 && to_ns(time) > now_ns() + realtime_ns / 2;
    return pthread_cond_clockwait(condition, mutex, is_wall_time ? CLOCK_REALTIME : CLOCK_MONOTONIC,
                                  time);
}

int pthread_cond_signal(pthread_cond_t *condition)
{
    if (world)
        turn_wake(world, name_of(condition), 1);
    return real_signal(condition);
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
    if (world)
        turn_wake(world, name_of(condition), INT_MAX);
    return real_broadcast(condition);
}

static int take_until(sem_t *semaphore, int64_t until_ns)
{
    while (sem_trywait(semaphore) != 0)
        if (errno != EAGAIN || !turn_wait(world, own, name_of(semaphore), until_ns))
            return (int)failed(errno == EAGAIN ? ETIMEDOUT : errno);
    return 0;
}

int sem_wait(sem_t *semaphore)
{
    return own >= 0 ? take_until(semaphore, NEVER_NS) : real_sem_wait(semaphore);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *time)
{
    return own >= 0 ? take_until(semaphore, moment_ns(clock, time)) : real_sem_wait(semaphore);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *time)
{
    return sem_clockwait(semaphore, CLOCK_REALTIME, time);
}

int sem_post(sem_t *semaphore)
{
    int error = real_sem_post(semaphore);
    if (world)
        turn_wake(world, name_of(semaphore), 1);
    return error;
}

/* --- threads and processes ------------------------------------------------------------------- */

struct start {
    void *(*function)(void *);
    void *argument;
    int place;
};

static void end_thread(void *nothing)
{
    (void)nothing;
    int place = own;
    own = -1;
    turn_end(world, place, name_of((void *)pthread_self()));
}

static void *run_thread(void *argument)
{
    struct start start = *(struct start *)argument;
    void *result;
    free(argument);
    own = start.place;
    turn_begin(world, own);
    pthread_cleanup_push(end_thread, NULL);
    result = start.function(start.argument);
    pthread_cleanup_pop(1);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                   void *argument)
{
    if (own < 0)
        return real_create(thread, attributes, function, argument);
    struct start *start = malloc(sizeof *start);
    if (!start)
        return EAGAIN;
    *start = (struct start){function, argument, turn_place(world)};
    int place = start->place;
    int error = place < 0 ? EAGAIN : real_create(thread, attributes, run_thread, start);
    if (!error) {
        world->threads[place].handle = (uint64_t)*thread;
        return 0;
    }
    if (place >= 0)
        turn_end(world, place, 0);
    free(start);
    return error;
}

int pthread_join(pthread_t thread, void **result)
{
    while (own >= 0 && turn_is_live(world, (uint64_t)thread))
        turn_wait(world, own, name_of((void *)thread), NEVER_NS);
    return real_join(thread, result);
}

static void before_fork(void)
{
    if (own >= 0)
        childs = turn_place(world);
}

static void in_child(void)
{
    if (own < 0)
        return;
    own = childs;
    if (own >= 0)
        turn_begin(world, own);
}

ssize_t read(int file, void *bytes, size_t count)
{
    struct pollfd ready = {.fd = file, .events = POLLIN};
    bool blocks = own >= 0 && turn_syscall(SYS_poll, (long)&ready, 1, 0, 0) == 0;
    if (blocks)
        turn_leave(world, own);
    long result = turn_syscall(SYS_read, file, (long)bytes, (long)count, 0);
    if (blocks)
        turn_return(world, own);
    return result < 0 ? failed((int)-result) : result;
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    long result = turn_syscall(SYS_wait4, pid, (long)status, options | WNOHANG, (long)usage);
    bool blocks = result == 0 && !(options & WNOHANG);
    if (blocks) {
        if (own >= 0)
            turn_leave(world, own);
        result = turn_syscall(SYS_wait4, pid, (long)status, options, (long)usage);
        if (own >= 0)
            turn_return(world, own);
    }
    return (pid_t)(result < 0 ? failed((int)-result) : result);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    return wait4(pid, status, options, NULL);
}

void _exit(int status)
{
    if (world)
        turn_forget(world, (int)turn_syscall(SYS_getpid, 0, 0, 0, 0));
    for (;;)
        turn_syscall(SYS_exit_group, status, 0, 0, 0);
}

__attribute__((constructor)) static void enter(void)
{
    find_all();
    const char *path = getenv("VIRTUAL_TIME_FILE");
    struct turn_world *found = path ? turn_map(path, getenv("VIRTUAL_TIME_CHANCE")) : NULL;
    if (!found)
        return;
    turn_forget(found, (int)turn_syscall(SYS_getpid, 0, 0, 0, 0)); /* what it was before exec */
    int place = turn_place(found);
    if (place < 0)
        return;
    world = found;
    own = place;
    pthread_atfork(before_fork, NULL, in_child);
    turn_begin(world, own);
}

__attribute__((destructor)) static void leave(void)
{
    struct turn_world *left = world;
    own = -1;
    if (left)
        turn_forget(left, (int)turn_syscall(SYS_getpid, 0, 0, 0, 0));
}
