/* The map of a process's allocations: a tree by address range and a list, under memory_mutex. */
#include <search.h>
#include <stdlib.h>

#include "driver.h"
#include "ipc.h"
#include "vmm.h"

pthread_mutex_t memory_mutex = PTHREAD_MUTEX_INITIALIZER;
static void *allocation_tree; /* of struct allocation, by range */
static struct allocation *allocation_list;
static unsigned long long next_allocation_id;

/* Ranges that touch are equal, so that a search for a few bytes finds the whole. */
static int compare_ranges(const void *left, const void *right)
{
    const struct allocation *one = left, *other = right;
    if (one->address + one->bytes <= other->address)
        return -1;
    return one->address >= other->address + other->bytes ? 1 : 0;
}

static struct allocation *insert(const struct allocation *content)
{
    struct allocation *allocation = malloc(sizeof *allocation);
    if (!allocation)
        return NULL;
    *allocation = *content;
    pthread_mutex_lock(&memory_mutex);
    allocation->id = ++next_allocation_id;
    allocation->next = allocation_list;
    struct allocation **node = tsearch(allocation, &allocation_tree, compare_ranges);
    if (!node || *node != allocation) {
        free(allocation);
        allocation = NULL;
    } else {
        if (allocation_list)
            allocation_list->previous = allocation;
        allocation_list = allocation;
    }
    pthread_mutex_unlock(&memory_mutex);
    return allocation;
}

struct allocation *memory_insert(uint64_t address, uint64_t bytes, uint64_t charged_bytes,
                                 enum allocation_kind kind, struct CUctx_st *context,
                                 struct CUmemPoolHandle_st *pool)
{
    return insert(&(struct allocation){.address = address,
                                       .bytes = bytes,
                                       .charged_bytes = charged_bytes,
                                       .kind = kind,
                                       .context = context,
                                       .pool = pool});
}

bool memory_insert_piece(uint64_t address, uint64_t bytes, enum allocation_kind kind,
                         struct CUctx_st *context, struct block *block)
{
    return insert(&(struct allocation){.address = address,
                                       .bytes = bytes,
                                       .kind = kind,
                                       .context = context,
                                       .block = block}) != NULL;
}

bool memory_insert_mapped(uint64_t address, uint64_t bytes, struct CUctx_st *context,
                          struct backing *of_piece)
{
    return insert(&(struct allocation){.address = address,
                                       .bytes = bytes,
                                       .kind = ALLOCATION_MAPPED,
                                       .context = context,
                                       .of_piece = of_piece}) != NULL;
}

bool memory_insert_external(uint64_t address, uint64_t bytes, enum allocation_kind kind,
                            struct CUctx_st *context, struct physical *external)
{
    return insert(&(struct allocation){.address = address,
                                       .bytes = bytes,
                                       .kind = kind,
                                       .context = context,
                                       .external = external}) != NULL;
}

bool allocation_on_host(const struct allocation *allocation)
{
    return allocation->kind == ALLOCATION_HOST || allocation->kind == ALLOCATION_REGISTERED ||
           (allocation->kind == ALLOCATION_MAPPED && !allocation->of_piece) ||
           (allocation->kind == ALLOCATION_POOL && pool_on_host(allocation->pool));
}

struct driver_device *allocation_device(const struct allocation *allocation)
{
    return allocation_on_host(allocation) ? NULL
           : allocation->pool             ? allocation->pool->device
           : allocation->of_piece         ? allocation->of_piece->device
           : allocation->shared           ? allocation->shared->device
           : allocation->external         ? allocation->external->device
                                          : allocation->context->device;
}

struct allocation *memory_find_byte_locked(uint64_t address)
{
    struct allocation key = {.address = address, .bytes = 1};
    struct allocation **node = tfind(&key, &allocation_tree, compare_ranges);
    return node ? *node : NULL;
}

/* A range may run over mappings that lie side by side: to a program they are one reservation. */
struct allocation *memory_find_locked(uint64_t address, uint64_t bytes)
{
    struct allocation *first = memory_find_byte_locked(address), *last = first;
    while (last && address + bytes > last->address + last->bytes) {
        if (last->kind != ALLOCATION_MAPPED)
            return NULL;
        last = memory_find_byte_locked(last->address + last->bytes);
    }
    return last && (last == first || last->kind == ALLOCATION_MAPPED) ? first : NULL;
}

struct allocation *memory_find_opened_locked(const struct CUctx_st *context,
                                             const struct driver_device *device, uint64_t shared_id,
                                             uint64_t offset)
{
    struct allocation *allocation = allocation_list;
    while (allocation &&
           (allocation->kind != ALLOCATION_OPENED || allocation->context != context ||
            !allocation->shared || allocation->shared->device != device ||
            allocation->shared->identifier != shared_id || allocation->shared->offset != offset))
        allocation = allocation->next;
    return allocation;
}

bool memory_find(uint64_t address, uint64_t bytes, struct allocation *found)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation =
        address + bytes < address ? NULL : memory_find_locked(address, bytes);
    if (allocation && found)
        *found = *allocation;
    pthread_mutex_unlock(&memory_mutex);
    return allocation != NULL;
}

/* Takes the allocation that begins at `address` out of the map; the caller frees it. */
struct allocation *memory_remove_locked(uint64_t address)
{
    struct allocation *allocation = memory_find_byte_locked(address);
    if (!allocation || allocation->address != address)
        return NULL;
    tdelete(allocation, &allocation_tree, compare_ranges);
    if (allocation->previous)
        allocation->previous->next = allocation->next;
    else
        allocation_list = allocation->next;
    if (allocation->next)
        allocation->next->previous = allocation->previous;
    return allocation;
}

struct allocation *memory_take_of_context(const struct CUctx_st *context)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = allocation_list;
    while (allocation && (allocation->context != context || allocation->pool ||
                          allocation->kind == ALLOCATION_MAPPED))
        allocation = allocation->next;
    if (allocation)
        allocation = memory_remove_locked(allocation->address);
    pthread_mutex_unlock(&memory_mutex);
    return allocation;
}
