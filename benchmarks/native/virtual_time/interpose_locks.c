/* Locks, conditions and semaphores. */
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>

#include "interpose.h"

static int (*real_lock)(pthread_mutex_t *);
static int (*real_unlock)(pthread_mutex_t *);
static int (*real_timedlock)(pthread_mutex_t *, const struct timespec *);
static int (*real_cond_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                                  const struct timespec *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_signal)(pthread_cond_t *);
static int (*real_broadcast)(pthread_cond_t *);
static int (*real_sem_wait)(sem_t *);
static int (*real_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
static int (*real_sem_post)(sem_t *);

void find_locks(void)
{
    find(&real_lock, "pthread_mutex_lock", "GLIBC_2.2.5");
    find(&real_unlock, "pthread_mutex_unlock", "GLIBC_2.2.5");
    find(&real_timedlock, "pthread_mutex_timedlock", "GLIBC_2.34");
    find(&real_cond_wait, "pthread_cond_wait", "GLIBC_2.3.2");
    find(&real_cond_timedwait, "pthread_cond_timedwait", "GLIBC_2.3.2");
    find(&real_cond_clockwait, "pthread_cond_clockwait", "GLIBC_2.34");
    find(&real_signal, "pthread_cond_signal", "GLIBC_2.3.2");
    find(&real_broadcast, "pthread_cond_broadcast", "GLIBC_2.3.2");
    find(&real_sem_wait, "sem_wait", "GLIBC_2.34");
    find(&real_sem_clockwait, "sem_clockwait", "GLIBC_2.34");
    find(&real_sem_post, "sem_post", "GLIBC_2.34");
}

static int lock_until(pthread_mutex_t *mutex, int64_t until_ns)
{
    int error;
    while ((error = pthread_mutex_trylock(mutex)) == EBUSY) {
        __atomic_add_fetch(&world->lock_waiters, 1, __ATOMIC_RELAXED);
        bool woken = turn_wait(world, own, turn_name(A_LOCK, mutex), until_ns);
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
        turn_wake(world, turn_name(A_LOCK, mutex), INT_MAX);
    return error;
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
        return real_cond_clockwait(condition, mutex, clock, time);
    return wait_for_condition(condition, mutex, moment_ns(clock, time));
}

/* Which clock it means is in the condition, where only libc reads it. The two are far apart. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *time)
{
    if (own < 0)
        return real_cond_timedwait(condition, mutex, time);
    bool is_wall_time = to_ns(time) > now_ns() + realtime_ns / 2;
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
    return own >= 0 ? take_until(semaphore, moment_ns(clock, time))
                    : real_sem_clockwait(semaphore, clock, time);
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
