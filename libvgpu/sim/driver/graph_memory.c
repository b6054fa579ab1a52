/* Memory of graphs: see graph_memory.h. */
#include "graph_memory.h"

#include <stdlib.h>

#include "graph_grant.h"

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

static struct graph_allocation *allocations;

static uint64_t charged_bytes(const struct graph_allocation *allocation)
{
    return memory_round(allocation->bytes);
}

static void free_live_locked(struct graph_allocation *allocation)
{
    allocation->live = false;
    graph_pool_leave(graph_pool_of(allocation->device), charged_bytes(allocation));
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
    REFUSE_IF(memory_round(bytes) < bytes, CUDA_ERROR_OUT_OF_MEMORY);
    struct graph_allocation *allocation = malloc(sizeof *allocation);
    void *mapped = allocation ? memory_map(bytes) : NULL;
    pthread_mutex_lock(&graph_memory_mutex);
    struct graph_pool *pool = graph_pool_of(context->device);
    if (!mapped || !memory_insert((uint64_t)mapped, bytes, 0, ALLOCATION_POOL, context,
                                  graph_pool_handle(pool))) {
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

static void end_lease_locked(const struct graph_memory_lease *lease)
{
    for (int i = 0; i < SIM_MAX_GPUS; i++)
        if (lease->grants[i])
            graph_grant_end(lease->grants[i]);
}

/* All of a launch's memory, or nothing: allocations first, so that a launch never gets half way. */
static CUresult take_locked(const struct graph_memory_plan *plan, unsigned long long stream_id,
                            struct graph_memory_lease *lease)
{
    *lease = (struct graph_memory_lease){0};
    for (size_t i = 0; i < plan->taken_count; i++) {
        struct graph_allocation *allocation = plan->taken[i];
        if (graph_pool_use(graph_pool_of(allocation->device), charged_bytes(allocation))) {
            allocation->live = true;
            continue;
        }
        while (i--)
            free_live_locked(plan->taken[i]);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int i = 0; i < SIM_MAX_GPUS; i++) {
        if (!plan->footprint_bytes[i])
            continue;
        struct graph_pool *pool = graph_pool_of(&driver.devices[i]);
        lease->grants[i] = graph_grant_take(pool, plan->owner, stream_id, plan->footprint_bytes[i]);
        if (lease->grants[i]) {
            graph_grant_begin(pool, lease->grants[i], stream_id);
            continue;
        }
        end_lease_locked(lease);
        for (size_t j = 0; j < plan->taken_count; j++)
            free_live_locked(plan->taken[j]);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult graph_memory_begin(const struct graph_memory_plan *plan, unsigned long long stream_id,
                            bool frees_first, struct graph_memory_lease *lease)
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
        result = take_locked(plan, stream_id, lease);
    for (size_t i = 0; i < plan->given_count && result == CUDA_SUCCESS; i++)
        free_live_locked(plan->given[i]);
    pthread_mutex_unlock(&graph_memory_mutex);
    return result;
}

void graph_memory_end(const struct graph_memory_lease *lease)
{
    pthread_mutex_lock(&graph_memory_mutex);
    end_lease_locked(lease);
    pthread_mutex_unlock(&graph_memory_mutex);
}

void graph_memory_prepare(const struct graph_memory_plan *plan, unsigned long long stream_id)
{
    pthread_mutex_lock(&graph_memory_mutex);
    for (int i = 0; i < driver.device_count; i++) {
        struct graph_pool *pool = graph_pool_of(&driver.devices[i]);
        uint64_t later_bytes = 0;
        for (size_t j = 0; j < plan->taken_count; j++)
            if (plan->taken[j]->device == &driver.devices[i] && !plan->taken[j]->live)
                later_bytes += charged_bytes(plan->taken[j]);
        bool used = later_bytes && graph_pool_use(pool, later_bytes);
        if (plan->footprint_bytes[i]) /* next to that: a launch has both at one time */
            graph_grant_take(pool, plan->owner, stream_id, plan->footprint_bytes[i]);
        if (used)
            graph_pool_leave(pool, later_bytes); /* reserved from now on, and not used yet */
    }
    pthread_mutex_unlock(&graph_memory_mutex);
}
