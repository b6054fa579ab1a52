/* The shim's locks, and the order in which a thread may take them: what LOCK_LEVELS lists, from
 * top to bottom, is taken in that order only, so no two threads ever wait for each other in a ring.
 *
 * All locks are ready when they are all zero. Most are mutexes: lock_take and its like are plain
 * pthread calls. A short_lock is for the few dozen instructions that every allocation and every free
 * goes through: a mutex takes a locked instruction to take and another to give back, a short_lock
 * only the first, and who gives it back wakes nobody. A build with -DVGPU_CHECK_LOCKS also keeps what each thread holds, and a thread
 * that takes a lock out of order is told so on stderr and aborted (tests/native/slice/
 * test_locks.py runs the exercises in such a build).
 *
 * Across a call of the driver that may wait only LOCK_GRAPH_POOL and LOCK_STREAM_POOL are held (the
 * launch of a graph that holds memory, an allocation of a pool), LOCK_CONTEXTS and LOCK_OPENS, under
 * which nothing is launched, and LOCK_THROTTLE (an event, where the driver has no room for more): who
 * launches, waits for the GPU or ends a stream goes on without that one. */
#ifndef VGPU_LOCKS_H
#define VGPU_LOCKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define LOCK_LEVELS(LEVEL) \
    /* making and ending contexts, and their limits (hook_context.c) */ \
    LEVEL(LOCK_CONTEXTS) \
    /* how often an IPC handle is open (hook_ipc.c) */ \
    LEVEL(LOCK_OPENS) \
    /* one GPU's graph memory (pool_state.h); a launch takes several, by the GPU's ordinal. What is \
       reserved under it may have to be given back elsewhere first, so all that charge_attempt \
       takes is further down */ \
    LEVEL(LOCK_GRAPH_POOL) \
    /* frees that are not reached by their stream yet (deferred_free.c) */ \
    LEVEL(LOCK_DEFERRED_FREES) \
    /* memory that several processes hold (shared_memory.c) */ \
    LEVEL(LOCK_SHARED_MEMORY) \
    /* one stream-ordered pool (pool_state.h) */ \
    LEVEL(LOCK_STREAM_POOL) \
    /* sparse arrays that were made unseen (sparse_array.c) */ \
    LEVEL(LOCK_SPARSE_ARRAYS) \
    /* what this process holds, by NVML (reconcile.c); nobody waits for it */ \
    LEVEL(LOCK_RECONCILE) \
    /* what is in flight on one device (throttle.c), and the samples without a cap (uncapped.c) */ \
    LEVEL(LOCK_THROTTLE) \
    LEVEL(LOCK_SAMPLES) \
    /* small pieces of device memory (slabs.c) */ \
    LEVEL(LOCK_SLABS) \
    /* everything that must not happen during a fork (region.c) */ \
    LEVEL(LOCK_FORK_GUARD) \
    /* leaves: nothing is taken under them, and one of them at a time */ \
    LEVEL(LOCK_COLLECTIVES)    /* which functions and graphs are parts of one (collective.c) */ \
    LEVEL(LOCK_HANDLES)        /* memory by handle, and where it is mapped (vmm_records.c) */ \
    LEVEL(LOCK_GRAPHS)         /* what executable graphs need (graph_memory.c) */ \
    LEVEL(LOCK_POOLS)          /* the list of pools (pool_records.c) */ \
    LEVEL(LOCK_EXTERNAL)       /* imports from other interfaces (hook_external.c) */ \
    LEVEL(LOCK_ALLOCATION_MAP) /* one shard of the map of allocations (allocation_map.c) */

enum lock_level {
#define LEVEL(name) name,
    LOCK_LEVELS(LEVEL)
#undef LEVEL
};

#ifdef VGPU_CHECK_LOCKS
/* The calling thread is about to take, has given back, and (in the child of a fork) holds nothing
 * of what it took. */
void locks_note_taken(const void *lock, enum lock_level level);
void locks_note_given_back(const void *lock);
void locks_forget(void);
#else
static inline void locks_note_taken(const void *lock, enum lock_level level)
{
    (void)lock, (void)level;
}

static inline void locks_note_given_back(const void *lock)
{
    (void)lock;
}

static inline void locks_forget(void)
{
}
#endif

static inline void lock_take(pthread_mutex_t *lock, enum lock_level level)
{
    locks_note_taken(lock, level);
    pthread_mutex_lock(lock);
}

/* False when another thread has it: this one goes on without. */
static inline bool lock_try(pthread_mutex_t *lock, enum lock_level level)
{
    if (pthread_mutex_trylock(lock) != 0)
        return false;
    locks_note_taken(lock, level);
    return true;
}

/* False when another thread has had it for about that long, below a second: this one goes on without. */
static inline bool lock_take_within(pthread_mutex_t *lock, enum lock_level level, long most_ns)
{
    struct timespec until;
    if (lock_try(lock, level))
        return true;
    clock_gettime(CLOCK_REALTIME, &until); /* the only clock that every libc waits by */
    until.tv_nsec += most_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_mutex_timedlock(lock, &until) != 0)
        return false;
    locks_note_taken(lock, level);
    return true;
}

static inline void lock_give_back(pthread_mutex_t *lock)
{
    locks_note_given_back(lock);
    pthread_mutex_unlock(lock);
}

/* In the child of a fork: whichever thread held it is not there. */
static inline void lock_reset(pthread_mutex_t *lock)
{
    pthread_mutex_init(lock, NULL);
}

struct short_lock {
    uint32_t is_taken; /* atomic */
};

/* Waits until another thread has given it back, and takes it. */
void short_lock_wait(struct short_lock *lock);

static inline void short_lock_take(struct short_lock *lock, enum lock_level level)
{
    locks_note_taken(lock, level);
    if (__builtin_expect(__atomic_exchange_n(&lock->is_taken, 1, __ATOMIC_ACQUIRE) != 0, 0))
        short_lock_wait(lock);
}

static inline void short_lock_give_back(struct short_lock *lock)
{
    locks_note_given_back(lock);
    __atomic_store_n(&lock->is_taken, 0, __ATOMIC_RELEASE);
}

/* The same for mutexes under which a cancellation point is called (the driver, open): a thread that
 * is cancelled there would keep the lock for ever. Answers what lock_give_back_whole restores. */
static inline int lock_take_whole(pthread_mutex_t *lock, enum lock_level level)
{
    int cancelling;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    lock_take(lock, level);
    return cancelling;
}

static inline void lock_give_back_whole(pthread_mutex_t *lock, int cancelling)
{
    lock_give_back(lock);
    pthread_setcancelstate(cancelling, NULL);
}

#endif
