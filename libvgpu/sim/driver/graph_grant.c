#include "graph_grant.h"

#include <stdlib.h>

#include "block.h"
#include "graph_memory.h"

struct graph_grant {
    unsigned long long owner, stream_id; /* who has it, and where that went last */
    unsigned int launches;               /* under way */
    unsigned long long launched_by;      /* the last of them */
    uint64_t bytes;
    struct graph_grant *next;
};

struct graph_pool {
    struct CUmemPoolHandle_st pool;
    struct graph_grant *grants;
};

pthread_mutex_t graph_memory_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct graph_pool pools[SIM_MAX_GPUS];

struct graph_pool *graph_pool_of(struct driver_device *device)
{
    struct graph_pool *pool = &pools[device - driver.devices];
    if (!pool->pool.magic) {
        pool_initialise(&pool->pool, device);
        pool->pool.threshold_bytes = UINT64_MAX;
    }
    return pool;
}

struct CUmemPoolHandle_st *graph_pool_handle(struct graph_pool *pool)
{
    return &pool->pool;
}

struct CUmemPoolHandle_st *graph_memory_lock(struct driver_device *device)
{
    pthread_mutex_lock(&graph_memory_mutex);
    return &graph_pool_of(device)->pool;
}

void graph_memory_unlock(void)
{
    pthread_mutex_unlock(&graph_memory_mutex);
}

bool graph_memory_owns(const struct allocation *allocation)
{
    return (char *)allocation->pool >= (char *)pools &&
           (char *)allocation->pool < (char *)(pools + SIM_MAX_GPUS);
}

/* Takes up to so many bytes from grants that no launch uses, but for `keep`. */
static void leave_idle(struct graph_pool *pool, uint64_t bytes, const struct graph_grant *keep)
{
    struct graph_grant **link = &pool->grants;
    while (*link && bytes) {
        struct graph_grant *grant = *link;
        uint64_t part = grant->launches || grant == keep ? 0
                        : grant->bytes < bytes           ? grant->bytes
                                                         : bytes;
        grant->bytes -= part;
        pool->pool.used_bytes -= part;
        bytes -= part;
        if (grant->bytes || grant->launches || grant == keep) {
            link = &grant->next;
        } else {
            *link = grant->next;
            free(grant);
        }
    }
}

void graph_memory_leave_idle_locked(struct driver_device *device)
{
    leave_idle(graph_pool_of(device), UINT64_MAX, NULL);
}

/* Counts bytes as used, of `keep` or of none of the grants; false when the device has too few. */
static bool use_for(struct graph_pool *each, uint64_t bytes, const struct graph_grant *keep)
{
    struct CUmemPoolHandle_st *pool = &each->pool;
    uint64_t spare_bytes = pool->reserved_bytes - pool->used_bytes;
    if (bytes > spare_bytes)
        leave_idle(each, bytes - spare_bytes, keep);
    uint64_t used = pool->used_bytes + bytes;
    if (used > pool->reserved_bytes) {
        uint64_t reserved = block_wanted(pool->device) ? block_round(pool->device, used) : used;
        if (memory_charge(pool->device, reserved - pool->reserved_bytes) != 0)
            return false;
        pool->reserved_bytes = reserved;
    }
    pool->used_bytes = used;
    if (pool->used_high_bytes < used)
        pool->used_high_bytes = used;
    if (pool->reserved_high_bytes < pool->reserved_bytes)
        pool->reserved_high_bytes = pool->reserved_bytes;
    return true;
}

bool graph_pool_use(struct graph_pool *pool, uint64_t bytes)
{
    return use_for(pool, bytes, NULL);
}

void graph_pool_leave(struct graph_pool *pool, uint64_t bytes)
{
    pool->pool.used_bytes -= bytes;
}

/* That of an executable graph, unless the launch of another one uses it elsewhere; or else that of
 * the stream. Launches of one executable graph never overlap, those in one stream neither. */
static struct graph_grant *grant_of(const struct graph_pool *pool, unsigned long long owner,
                                    unsigned long long stream_id)
{
    struct graph_grant *of_stream = NULL;
    for (struct graph_grant *grant = pool->grants; grant; grant = grant->next) {
        if (grant->owner == owner && (!grant->launches || grant->launched_by == owner))
            return grant;
        if (grant->stream_id == stream_id)
            of_stream = grant;
    }
    return of_stream;
}

/* What comes next in the stream comes after this. */
static void lead(struct graph_pool *pool, struct graph_grant *grant, unsigned long long stream_id)
{
    for (struct graph_grant *other = pool->grants; other; other = other->next)
        if (other->stream_id == stream_id)
            other->stream_id = 0;
    grant->stream_id = stream_id;
}

struct graph_grant *graph_grant_take(struct graph_pool *pool, unsigned long long owner,
                                     unsigned long long stream_id, uint64_t bytes)
{
    struct graph_grant *grant = grant_of(pool, owner, stream_id);
    if (!grant) {
        grant = calloc(1, sizeof *grant);
        if (!grant)
            return NULL;
        grant->next = pool->grants;
        pool->grants = grant;
    }
    for (struct graph_grant *other = pool->grants; other; other = other->next)
        if (other->owner == owner)
            other->owner = 0;
    grant->owner = owner;
    if (!grant->launches)
        lead(pool, grant, stream_id);
    if (bytes > grant->bytes) {
        if (!use_for(pool, bytes - grant->bytes, grant)) {
            leave_idle(pool, UINT64_MAX, NULL);
            return NULL;
        }
        grant->bytes = bytes;
    }
    return grant;
}

void graph_grant_begin(struct graph_pool *pool, struct graph_grant *grant,
                       unsigned long long stream_id)
{
    grant->launches++;
    grant->launched_by = grant->owner;
    lead(pool, grant, stream_id);
}

void graph_grant_end(struct graph_grant *grant)
{
    grant->launches--;
}
