/* Memory of graphs: see graph_memory.h. */
#include "graph_memory.h"

#include <stdlib.h>

struct graph_allocation {
    unsigned int references; /* by nodes, of executable graphs too */
    struct driver_device *device;
    uint64_t address, bytes;
    unsigned long long graph_id; /* of the owner */
    bool live;
    bool freed_inside;          /* by the graph that allocates it */
    unsigned int freed_outside; /* by so many nodes of other graphs */
    struct graph_allocation *next;
};

/* The footprint of the launches under way in one stream. */
struct stream_grant {
    unsigned long long stream_id;
    unsigned int launches;
    uint64_t bytes;
    struct stream_grant *next;
};

struct graph_pool {
    struct CUmemPoolHandle_st pool;
    struct stream_grant *grants;
};

static pthread_mutex_t graph_memory_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct graph_allocation *allocations;
static struct graph_pool pools[SIM_MAX_DEVICES];

static struct graph_pool *pool_of_locked(struct driver_device *device)
{
    struct graph_pool *pool = &pools[device - driver.devices];
    if (!pool->pool.magic) {
        pool_initialise(&pool->pool, device);
        pool->pool.threshold_bytes = UINT64_MAX;
    }
    return pool;
}

struct CUmemPoolHandle_st *graph_memory_lock(struct driver_device *device)
{
    pthread_mutex_lock(&graph_memory_mutex);
    return &pool_of_locked(device)->pool;
}

void graph_memory_unlock(void)
{
    pthread_mutex_unlock(&graph_memory_mutex);
}

static uint64_t charged_bytes(const struct graph_allocation *allocation)
{
    return memory_round(allocation->bytes);
}

bool graph_memory_owns(const struct allocation *allocation)
{
    return (char *)allocation->pool >= (char *)pools &&
           (char *)allocation->pool < (char *)(pools + SIM_MAX_DEVICES);
}

/* Counts bytes as used; false, and nothing is changed, when the device has too few. */
static bool use_locked(struct graph_pool *each, uint64_t bytes)
{
    struct CUmemPoolHandle_st *pool = &each->pool;
    uint64_t used = pool->used_bytes + bytes;
    if (used > pool->reserved_bytes) {
        if (memory_charge(pool->device, used - pool->reserved_bytes) != 0)
            return false;
        pool->reserved_bytes = used;
    }
    pool->used_bytes = used;
    if (pool->used_high_bytes < used)
        pool->used_high_bytes = used;
    if (pool->reserved_high_bytes < pool->reserved_bytes)
        pool->reserved_high_bytes = pool->reserved_bytes;
    return true;
}

static void free_live_locked(struct graph_allocation *allocation)
{
    allocation->live = false;
    pool_of_locked(allocation->device)->pool.used_bytes -= charged_bytes(allocation);
}

/* Takes an allocation that nobody needs any more out of everything. */
static void forget_locked(struct graph_allocation *allocation)
{
    if (allocation->references || allocation->live)
        return;
    struct graph_allocation **link = &allocations;
    while (*link != allocation)
        link = &(*link)->next;
    *link = allocation->next;
    pthread_mutex_lock(&memory_mutex);
    struct allocation *mapped = memory_remove_locked(allocation->address);
    pthread_mutex_unlock(&memory_mutex);
    bool untouched = mapped->backing.bytes == 0;
    backing_give_up(&mapped->backing);
    free(mapped);
    memory_unmap((void *)allocation->address, allocation->bytes, untouched);
    free(allocation);
}

CUresult graph_memory_create(struct CUctx_st *context, uint64_t bytes, unsigned long long graph_id,
                             struct graph_allocation **result, CUdeviceptr *address)
{
    if (memory_round(bytes) < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_allocation *allocation = malloc(sizeof *allocation);
    void *mapped = allocation ? memory_map(bytes) : NULL;
    pthread_mutex_lock(&graph_memory_mutex);
    struct graph_pool *pool = pool_of_locked(context->device);
    if (!mapped ||
        !memory_insert((uint64_t)mapped, bytes, 0, ALLOCATION_POOL, context, &pool->pool)) {
        pthread_mutex_unlock(&graph_memory_mutex);
        if (mapped)
            memory_unmap(mapped, bytes, true);
        free(allocation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *allocation = (struct graph_allocation){.references = 1,
                                            .device = context->device,
                                            .address = (uint64_t)mapped,
                                            .bytes = bytes,
                                            .graph_id = graph_id,
                                            .next = allocations};
    allocations = allocation;
    pthread_mutex_unlock(&graph_memory_mutex);
    *result = allocation;
    *address = allocation->address;
    return CUDA_SUCCESS;
}

void graph_memory_hold(struct graph_allocation *allocation)
{
    pthread_mutex_lock(&graph_memory_mutex);
    allocation->references++;
    pthread_mutex_unlock(&graph_memory_mutex);
}

void graph_memory_drop(struct graph_allocation *allocation)
{
    pthread_mutex_lock(&graph_memory_mutex);
    allocation->references--;
    forget_locked(allocation);
    pthread_mutex_unlock(&graph_memory_mutex);
}

static struct graph_allocation *find_locked(uint64_t address)
{
    struct graph_allocation *allocation = allocations;
    while (allocation && allocation->address != address)
        allocation = allocation->next;
    return allocation;
}

CUresult graph_memory_claim(uint64_t address, unsigned long long graph_id,
                            struct graph_allocation **result)
{
    pthread_mutex_lock(&graph_memory_mutex);
    struct graph_allocation *allocation = find_locked(address);
    bool inside = allocation && allocation->graph_id == graph_id;
    /* one free node in the owning graph, or any number of graphs with one each */
    bool good = allocation && !allocation->freed_inside && !(inside && allocation->freed_outside);
    if (good) {
        allocation->references++;
        allocation->freed_inside = inside;
        allocation->freed_outside += !inside;
        *result = allocation;
    }
    pthread_mutex_unlock(&graph_memory_mutex);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void graph_memory_unclaim(struct graph_allocation *allocation, unsigned long long graph_id)
{
    pthread_mutex_lock(&graph_memory_mutex);
    if (allocation->graph_id == graph_id)
        allocation->freed_inside = false;
    else
        allocation->freed_outside--;
    pthread_mutex_unlock(&graph_memory_mutex);
}

CUresult graph_memory_free(uint64_t address)
{
    pthread_mutex_lock(&graph_memory_mutex);
    struct graph_allocation *allocation = find_locked(address);
    bool good = allocation && allocation->live;
    if (good) {
        free_live_locked(allocation);
        forget_locked(allocation);
    }
    pthread_mutex_unlock(&graph_memory_mutex);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- launches -------------------------------------------------------------------------------- */

static bool remember(struct graph_allocation ***list, size_t *count, struct graph_allocation *added)
{
    struct graph_allocation **grown = realloc(*list, (*count + 1) * sizeof *grown);
    if (!grown)
        return false;
    grown[(*count)++] = added;
    *list = grown;
    return true;
}

bool graph_memory_plan_add(struct graph_memory_plan *plan, const struct graph_node *node)
{
    struct graph_allocation *allocation = node->allocation;
    size_t device = (size_t)(allocation->device - driver.devices);
    bool takes = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    plan->any = true;
    if (!allocation->freed_inside)
        return takes ? remember(&plan->taken, &plan->taken_count, allocation)
                     : remember(&plan->given, &plan->given_count, allocation);
    if (takes)
        plan->now_bytes[device] += charged_bytes(allocation);
    else
        plan->now_bytes[device] -= charged_bytes(allocation);
    if (plan->now_bytes[device] > plan->footprint_bytes[device])
        plan->footprint_bytes[device] = plan->now_bytes[device];
    return true;
}

void graph_memory_plan_clear(struct graph_memory_plan *plan)
{
    free(plan->taken);
    free(plan->given);
}

static struct stream_grant *grant_of(struct graph_pool *pool, unsigned long long stream_id)
{
    struct stream_grant *grant = pool->grants;
    while (grant && grant->stream_id != stream_id)
        grant = grant->next;
    return grant;
}

static bool lease_locked(struct graph_pool *pool, unsigned long long stream_id, uint64_t bytes)
{
    struct stream_grant *grant = grant_of(pool, stream_id);
    if (!grant) {
        grant = calloc(1, sizeof *grant);
        if (!grant)
            return false;
        grant->stream_id = stream_id;
        grant->next = pool->grants;
        pool->grants = grant;
    }
    grant->launches++;
    uint64_t more_bytes = bytes > grant->bytes ? bytes - grant->bytes : 0;
    if (!use_locked(pool, more_bytes))
        return false; /* what ends the launch takes the grant away */
    grant->bytes += more_bytes;
    return true;
}

static void release_locked(struct graph_pool *pool, unsigned long long stream_id)
{
    struct stream_grant **link = &pool->grants;
    while (*link && (*link)->stream_id != stream_id)
        link = &(*link)->next;
    struct stream_grant *grant = *link;
    if (!grant || --grant->launches)
        return;
    pool->pool.used_bytes -= grant->bytes;
    *link = grant->next;
    free(grant);
}

static void end_leases_locked(const struct graph_memory_plan *plan, unsigned long long stream_id,
                              int devices)
{
    for (int i = 0; i < devices; i++)
        if (plan->footprint_bytes[i])
            release_locked(&pools[i], stream_id);
}

/* All of a launch's memory, or nothing: allocations first, so that a launch never gets half way. */
static CUresult take_locked(const struct graph_memory_plan *plan, unsigned long long stream_id)
{
    for (size_t i = 0; i < plan->taken_count; i++) {
        struct graph_allocation *allocation = plan->taken[i];
        if (use_locked(pool_of_locked(allocation->device), charged_bytes(allocation))) {
            allocation->live = true;
            continue;
        }
        while (i--)
            free_live_locked(plan->taken[i]);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int i = 0; i < SIM_MAX_DEVICES; i++)
        if (plan->footprint_bytes[i] && !lease_locked(pool_of_locked(&driver.devices[i]), stream_id,
                                                      plan->footprint_bytes[i])) {
            end_leases_locked(plan, stream_id, i + 1);
            for (size_t j = 0; j < plan->taken_count; j++)
                free_live_locked(plan->taken[j]);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    return CUDA_SUCCESS;
}

CUresult graph_memory_begin(const struct graph_memory_plan *plan, unsigned long long stream_id,
                            bool frees_first)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory_mutex);
    for (size_t i = 0; i < plan->taken_count; i++)
        if (plan->taken[i]->live && !frees_first)
            result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < plan->given_count; i++)
        if (!plan->given[i]->live)
            result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < plan->taken_count && result == CUDA_SUCCESS; i++)
        if (plan->taken[i]->live)
            free_live_locked(plan->taken[i]);
    if (result == CUDA_SUCCESS)
        result = take_locked(plan, stream_id);
    for (size_t i = 0; i < plan->given_count && result == CUDA_SUCCESS; i++)
        free_live_locked(plan->given[i]);
    pthread_mutex_unlock(&graph_memory_mutex);
    return result;
}

void graph_memory_end(const struct graph_memory_plan *plan, unsigned long long stream_id)
{
    pthread_mutex_lock(&graph_memory_mutex);
    end_leases_locked(plan, stream_id, SIM_MAX_DEVICES);
    pthread_mutex_unlock(&graph_memory_mutex);
}

void graph_memory_prepare(const struct graph_memory_plan *plan, unsigned long long stream_id)
{
    pthread_mutex_lock(&graph_memory_mutex);
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        const struct stream_grant *grant = grant_of(&pools[i], stream_id);
        uint64_t bytes = plan->footprint_bytes[i];
        if (grant) /* the later launch comes after those under way, and has their memory */
            bytes -= bytes < grant->bytes ? bytes : grant->bytes;
        for (size_t j = 0; j < plan->taken_count; j++)
            if (plan->taken[j]->device == &driver.devices[i] && !plan->taken[j]->live)
                bytes += charged_bytes(plan->taken[j]);
        if (bytes && use_locked(pool_of_locked(&driver.devices[i]), bytes))
            pools[i].pool.used_bytes -= bytes; /* reserved from now on, and not used yet */
    }
    pthread_mutex_unlock(&graph_memory_mutex);
}
