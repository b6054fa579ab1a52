#include "memory/pools/pool.h"

#include "driver/capture.h"
#include "memory/ledger/charge.h"
#include "memory/pools/pool_state.h"
#include "vgpu/contract.h"

static int is_slack; /* atomic: something was freed since the last look at what the driver keeps */

static uint64_t rounded(uint64_t bytes, uint64_t step_bytes)
{
    uint64_t sum;
    return __builtin_add_overflow(bytes, step_bytes - 1, &sum) ? UINT64_MAX / 2
                                                               : sum / step_bytes * step_bytes;
}

/* What is kept and not used goes back. */
void pool_reclaim(int device)
{
    for (struct pool *pool = pool_first_record(); pool != NULL; pool = pool->next) {
        /* only those of the device are locked: a launch may hold those of others */
        if (!pool_is_live(pool) || pool->device != device)
            continue;
        pool_lock_record(pool);
        if (pool->charged_bytes > 0) {
            pool_follow_driver(pool);
            /* of graphs the driver does not tell what is idle */
            bool may_be_idle = pool->form == POOL_OF_GRAPHS
                                   ? pool->charged_bytes > 0
                                   : pool->charged_bytes > pool_used_bytes(pool);
            if (may_be_idle && !capture_is_mine()) {
                pool_trim(pool);
                pool_follow_driver(pool);
            }
        }
        pool_unlock_record(pool);
    }
}

/* Nobody tells any more what the driver keeps: what lies in its last steps goes last. */
static void settle_destroyed(struct pool *pool)
{
    if (pool->used_bytes == 0 || pool->step_bytes == LEAST_STEP_BYTES)
        pool_shrink_charge(pool, pool->used_bytes);
    if (pool->used_bytes == 0 && pool->elsewhere_bytes == 0) /* pieces elsewhere know the record */
        __atomic_store_n(&pool->form, POOL_UNUSED, __ATOMIC_RELEASE);
}

void pool_part_from_handle(struct pool *pool)
{
    pool->serial++;
    __atomic_store_n(&pool->form, POOL_DESTROYED, __ATOMIC_RELEASE);
    settle_destroyed(pool);
}

void pool_release(struct charge_owner *owner, const struct allocation *allocation)
{
    struct pool *pool = (struct pool *)owner;
    pool_lock_record(pool);
    uint64_t bytes = charge_rounded(allocation->bytes);
    pool->used_bytes -= bytes < pool->used_bytes ? bytes : pool->used_bytes;
    if (pool->form == POOL_DESTROYED)
        settle_destroyed(pool);
    pool_unlock_record(pool);
    __atomic_store_n(&is_slack, 1, __ATOMIC_RELEASE);
}

/* ---- allocations ---- */

/* What the pool lacks for `bytes` more. */
static uint64_t lacking_bytes(const struct pool *pool, uint64_t bytes)
{
    uint64_t used = pool->charged_bytes > 0 ? pool_used_bytes(pool) : 0;
    uint64_t spare = pool->charged_bytes > used ? pool->charged_bytes - used : 0;
    uint64_t wanted = charge_rounded(bytes);
    return wanted > spare ? wanted - spare : 0;
}

static bool reserve(struct pool *pool, uint64_t bytes, struct charge *charge)
{
    if (!charge_try(charge, pool->device, VGPU_KIND_ASYNC, bytes))
        return false;
    pool->charged_bytes += bytes;
    pool->begun_bytes = bytes;
    return true;
}

/* Reserves what the pool lacks for `bytes` more, in whole steps of the driver's. */
static bool reserve_steps(struct pool *pool, uint64_t bytes, struct charge *charge)
{
    uint64_t lacking = lacking_bytes(pool, bytes);
    *charge = (struct charge){.device = pool->device, .kind = VGPU_KIND_ASYNC};
    if (lacking == 0)
        return pool->device >= 0;
    return reserve(pool, rounded(lacking, pool->step_bytes), charge);
}

/* The steps are a guess: a pool may take no more than it needs. */
static bool reserve_least(struct pool *pool, uint64_t bytes, struct charge *charge)
{
    uint64_t lacking = lacking_bytes(pool, bytes);
    return lacking < rounded(lacking, pool->step_bytes) && reserve(pool, lacking, charge);
}

struct attempt {
    struct pool *pool; /* locked when it begins, and where an attempt succeeded */
    uint64_t bytes;
    bool is_sure;
    uint64_t serial;
    struct charge charge;
    bool is_second;
};

static bool attempt(void *what)
{
    struct attempt *of = what;
    struct pool *pool = of->pool;
    if (of->is_second)
        pool_lock_record(pool);
    if ((!of->is_second || pool->serial == of->serial) &&
        (reserve_steps(pool, of->bytes, &of->charge) ||
         (of->is_second && !of->is_sure && reserve_least(pool, of->bytes, &of->charge))))
        return true;
    pool_unlock_record(pool); /* what is given back is looked for in this pool as well */
    of->is_second = true;
    return false;
}

CUresult pool_begin(struct pool *pool, uint64_t bytes, bool is_sure)
{
    struct attempt of = {pool, bytes, is_sure, pool->serial, {0}, false};
    pool->begun_bytes = 0;
    if (charge_attempt(pool->device, attempt, &of))
        return CUDA_SUCCESS;
    if (!is_sure)
        of.charge.bytes = bytes;
    return charge_refuse(&of.charge);
}

bool pool_end(struct pool *pool, uint64_t bytes, const CUdeviceptr *address)
{
    uint64_t reserved;
    bool told = pool_ask_reserved(pool, &reserved);
    struct charge *more = &pool->refused;
    if (told && address != NULL && reserved > pool->charged_bytes) {
        pool_note_steps(pool, reserved);
        if (!charge_try(more, pool->device, VGPU_KIND_ASYNC, reserved - pool->charged_bytes))
            return false;
        pool->charged_bytes = reserved;
    } else if (told && reserved > pool->charged_bytes) {
        pool_follow_driver(pool); /* by what it keeps for others */
    } else if (told) {
        pool_shrink_charge(pool, reserved);
    } else if (address == NULL) {
        /* no pool that the driver knows took nothing */
        pool_shrink_charge(pool, pool->charged_bytes - pool->begun_bytes);
        if (pool->charged_bytes == 0 && pool_is_live(pool))
            pool_part_from_handle(pool);
    }
    struct charge charge = {.device = pool->device, .kind = VGPU_KIND_ASYNC, .bytes = bytes};
    if (address != NULL)
        pool->used_bytes += charge_rounded(bytes);
    pool_unlock_record(pool);
    if (address != NULL) /* unlocked: what stood there before may be of this pool, too */
        charge_keep_lasting(&charge, SPACE_ADDRESS, *address, &pool->owner);
    return true;
}

/* Has the driver give back what was refused, which it does once no stream's order keeps it from that. What
 * the program has the pool keep goes with it, as it does when the driver itself finds the GPU full. */
static void give_up_refused(struct pool *pool)
{
    uint64_t before_bytes = 0, after_bytes = 0;
    if (!capture_is_mine() && pool_ask_reserved(pool, &before_bytes)) {
        pool_trim(pool);
        pool_ask_reserved(pool, &after_bytes);
    }
    if (before_bytes >= after_bytes + pool->refused_bytes ||
        pool_used_bytes(pool) <= pool->used_bytes)
        pool->refused_bytes = 0;
    else /* looked for again after the next wait */
        __atomic_store_n(&is_slack, 1, __ATOMIC_RELEASE);
}

void pool_undo(struct pool *pool, uint64_t bytes)
{
    pool->refused_bytes = charge_rounded(bytes);
    if (pool_is_live(pool)) {
        give_up_refused(pool);
        pool_follow_driver(pool);
    }
}

CUresult pool_refuse(struct pool *pool)
{
    struct charge refused = pool->refused;
    pool_unlock_record(pool);
    return charge_refuse(&refused);
}

uint64_t pool_epoch(const struct pool *pool)
{
    return pool->epoch;
}

void pool_end_graphs(struct pool *pool, uint64_t bytes, uint64_t *kept_bytes, uint64_t *taken_bytes,
                     uint64_t *epoch)
{
    uint64_t before_bytes = pool->charged_bytes - pool->begun_bytes;
    uint64_t reserved;
    if (pool_ask_reserved(pool, &reserved) && reserved % pool->step_bytes != 0)
        pool->step_bytes = LEAST_STEP_BYTES;
    pool_follow_driver(pool); /* limit or not: it is launched */
    if (pool->charged_bytes < before_bytes + bytes)
        pool->epoch++; /* some of it was there, and may have been another graph's */
    *kept_bytes = pool->charged_bytes;
    *taken_bytes = *kept_bytes > before_bytes ? *kept_bytes - before_bytes : 0;
    *epoch = pool->epoch;
    pool_unlock_record(pool);
}

void pool_refresh(struct pool *pool)
{
    if (pool_is_live(pool))
        pool_follow_driver(pool);
    pool_unlock_record(pool);
}

void pool_trimmed(struct pool *pool)
{
    pool->epoch++;
    pool_refresh(pool);
}

void pool_after_wait(void)
{
    if (__builtin_expect(!__atomic_load_n(&is_slack, __ATOMIC_ACQUIRE), 1))
        return;
    __atomic_store_n(&is_slack, 0, __ATOMIC_RELEASE);
    for (struct pool *pool = pool_first_record(); pool != NULL; pool = pool->next) {
        if (__atomic_load_n(&pool->form, __ATOMIC_ACQUIRE) != POOL_OF_STREAMS ||
            pool->charged_bytes <= pool->used_bytes)
            continue;
        pool_lock_record(pool);
        if (pool->form == POOL_OF_STREAMS && pool_used_bytes(pool) > pool->used_bytes)
            __atomic_store_n(&is_slack, 1, __ATOMIC_RELEASE); /* a free waits for another stream */
        if (pool->form == POOL_OF_STREAMS && pool->refused_bytes > 0)
            give_up_refused(pool);
        pool_refresh(pool);
    }
}

/* ---- the end of a pool ---- */

struct pool *pool_destroying(CUmemoryPool handle)
{
    struct pool *pool = pool_find_locked(POOL_OF_STREAMS, handle, 0);
    if (pool != NULL && !pool->is_host && pool->device >= 0) {
        pool_trim(pool);
        pool_follow_driver(pool);
    }
    return pool;
}

void pool_destroyed(struct pool *pool, bool done)
{
    if (pool == NULL)
        return;
    if (done) /* whoever got the same handle meanwhile waits for the lock, and looks again */
        pool_part_from_handle(pool);
    pool_unlock_record(pool);
}

bool pool_follows(struct charge_owner *owner)
{
    struct pool *pool = pool_owning(owner);
    return pool != NULL && pool_is_live(pool);
}

struct pool *pool_owning(struct charge_owner *owner)
{
    return owner != NULL && owner->release == pool_release ? (struct pool *)owner : NULL;
}

void pool_hand_over(struct pool *pool, uint64_t bytes)
{
    pool_lock_record(pool);
    pool->elsewhere_bytes += bytes;
    pool->used_bytes -= bytes < pool->used_bytes ? bytes : pool->used_bytes;
    pool_shrink_charge(pool, pool->charged_bytes > bytes ? pool->charged_bytes - bytes : 0);
    pool_unlock_record(pool);
}

void pool_took_back(struct pool *pool, uint64_t bytes)
{
    pool_lock_record(pool);
    pool->elsewhere_bytes -= bytes < pool->elsewhere_bytes ? bytes : pool->elsewhere_bytes;
    if (pool->form == POOL_OF_STREAMS)
        pool_follow_driver(pool);
    else if (pool->form == POOL_DESTROYED)
        settle_destroyed(pool);
    pool_unlock_record(pool);
}

void pool_forget_slack(void)
{
    is_slack = 0;
}
