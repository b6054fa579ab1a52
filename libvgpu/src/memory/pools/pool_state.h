/* What the parts of pools share: pool.c charges, pool_driver.c asks the driver and follows it,
 * pool_records.c finds the record of a pool. All but the finding is under the record's lock. */
#ifndef VGPU_POOL_STATE_H
#define VGPU_POOL_STATE_H

#include <pthread.h>

#include "memory/ledger/charge.h"
#include "memory/pools/pool.h"
#include "slice/locks.h"

#define LEAST_STEP_BYTES 512

enum pool_form { POOL_UNUSED, POOL_OF_STREAMS, POOL_OF_GRAPHS, POOL_DESTROYED };

struct pool {
    struct charge_owner owner; /* of its allocations; first */
    pthread_mutex_t lock;
    struct pool *next; /* set once */
    enum pool_form form;
    CUmemoryPool handle; /* of streams */
    CUdevice ordinal;    /* of graphs */
    int device;          /* index in `limits`; below 0: nothing can be reserved */
    bool is_host;        /* never charged */
    uint64_t charged_bytes;
    uint64_t used_bytes;      /* of its allocations that we know, rounded */
    uint64_t step_bytes;      /* steps in which the driver reserves, as it was seen or says */
    uint64_t elsewhere_bytes; /* reserved by the driver, but charged elsewhere */
    uint64_t begun_bytes;     /* reserved by the pool_begin that has not ended */
    struct charge refused;    /* what did not fit at the pool_end that answered false */
    uint64_t refused_bytes;   /* of what was refused then, and the driver may still have */
    uint64_t serial;          /* changes with the pool that the record stands for */
    uint64_t epoch;           /* of graphs: see pool_end_graphs */
    int cancelling;           /* of the thread that holds the lock */
};

/* The driver is called under it. The form may change until it is taken, never between the two
 * kinds that have a level each: a record that is used again was unlocked before. */
static inline void pool_lock_record(struct pool *pool)
{
    enum pool_form form = __atomic_load_n(&pool->form, __ATOMIC_RELAXED);
    int cancelling =
        lock_take_whole(&pool->lock, form == POOL_OF_GRAPHS ? LOCK_GRAPH_POOL : LOCK_STREAM_POOL);
    pool->cancelling = cancelling;
}

static inline void pool_unlock_record(struct pool *pool)
{
    lock_give_back_whole(&pool->lock, pool->cancelling);
}

static inline bool pool_is_live(const struct pool *pool)
{
    enum pool_form form = __atomic_load_n(&pool->form, __ATOMIC_ACQUIRE);
    return form == POOL_OF_STREAMS || form == POOL_OF_GRAPHS;
}

/* ---- pool_driver.c ---- */

/* The bytes that the driver has reserved for the pool, less what is charged elsewhere. False where
 * nobody can be asked. */
bool pool_ask_reserved(const struct pool *pool, uint64_t *bytes);

/* The bytes of it that are in use. The driver knows of frees that wait for their turn, and of those
 * that a graph did. Of graph memory, all: the driver does not tell what of it is idle. */
uint64_t pool_used_bytes(const struct pool *pool);

/* The steps in which a device gives memory, as the driver says. */
uint64_t pool_ask_step(CUdevice ordinal);

/* The steps in which pools of a device (an index in `limits`, or below 0) were seen to grow, and what is
 * learnt of them where a pool came to have `reserved` bytes, more than was to be expected. */
uint64_t pool_likely_step(int device);
void pool_note_steps(struct pool *pool, uint64_t reserved);

/* Gives back what is charged beyond `bytes`. */
void pool_shrink_charge(struct pool *pool, uint64_t bytes);

/* Sets the charge to what the driver has reserved, limit or not. */
void pool_follow_driver(struct pool *pool);

/* Has the driver give back what is not in use. */
void pool_trim(struct pool *pool);

/* ---- pool_records.c ---- */

/* For fork.c: in the child its parent's pools are not its own. */
void pool_after_fork(void);

/* The first record; the others follow by `next`. */
struct pool *pool_first_record(void);

/* The record, locked, or NULL. */
struct pool *pool_find_locked(enum pool_form form, CUmemoryPool handle, CUdevice ordinal);

/* ---- pool.c ---- */

/* The handle stands for nothing any more, or for another pool by now. */
void pool_part_from_handle(struct pool *pool);

/* For charge_owner and charge_on_shortage; what a forked child forgets in addition to the records. */
void pool_release(struct charge_owner *owner, const struct allocation *allocation);

void pool_reclaim(int device);
void pool_forget_slack(void);

#endif
