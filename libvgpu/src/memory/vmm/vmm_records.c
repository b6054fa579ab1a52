#include "memory/vmm/vmm_records.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_COUNT 64 /* nodes of the first chunk; a power of two */
#define MOST_CHUNKS 32

static struct vmm_record *chunks[MOST_CHUNKS]; /* chunk i holds FIRST_COUNT << i nodes */
static uint32_t chunk_count;
static struct vmm_record *free_list;
static struct vmm_record **chains; /* as many as there are nodes, so that chains stay short */
static uint64_t chain_count;

static void *map(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

static uint64_t nodes_of(uint32_t chunk)
{
    return (uint64_t)FIRST_COUNT << chunk;
}

static struct vmm_record **chain_of(uint64_t handle)
{
    uint64_t mixed = handle * 0x9e3779b97f4a7c15u;
    return &chains[(mixed ^ mixed >> 32) & (chain_count - 1)];
}

/* Twice as many chains as the nodes of all chunks together would fill. */
static bool grow_chains(uint64_t count)
{
    struct vmm_record **larger = map(count * sizeof *larger);
    if (larger == NULL)
        return false;
    if (chains != NULL)
        munmap(chains, chain_count * sizeof *chains);
    chains = larger;
    chain_count = count;
    for (uint32_t i = 0; i < chunk_count; i++)
        for (uint64_t at = 0; at < nodes_of(i); at++)
            if (chunks[i][at].is_listed)
                vmm_records_list(&chunks[i][at], chunks[i][at].handle);
    return true;
}

static bool grow(void)
{
    if (chunk_count == MOST_CHUNKS)
        return false;
    uint64_t count = nodes_of(chunk_count);
    struct vmm_record *chunk = map(count * sizeof *chunk);
    if (chunk == NULL)
        return false;
    if (!grow_chains(2 * count)) {
        munmap(chunk, count * sizeof *chunk);
        return false;
    }
    for (uint64_t at = count; at-- > 0;) {
        chunk[at].next = free_list;
        free_list = &chunk[at];
    }
    chunks[chunk_count++] = chunk;
    return true;
}

struct vmm_record *vmm_records_new(uint64_t id)
{
    if (free_list == NULL && !grow())
        return NULL;
    struct vmm_record *record = free_list;
    free_list = record->next;
    *record = (struct vmm_record){.id = id, .charge.device = CHARGE_NONE};
    return record;
}

void vmm_records_free(struct vmm_record *record)
{
    record->next = free_list;
    free_list = record;
}

struct vmm_record *vmm_records_find(uint64_t handle)
{
    struct vmm_record *record = chain_count > 0 ? *chain_of(handle) : NULL;
    while (record != NULL && record->handle != handle)
        record = record->next;
    return record;
}

void vmm_records_list(struct vmm_record *record, uint64_t handle)
{
    struct vmm_record **chain = chain_of(handle);
    record->handle = handle;
    record->is_listed = true;
    record->next = *chain;
    *chain = record;
}

void vmm_records_unlist(struct vmm_record *record)
{
    if (!record->is_listed)
        return;
    struct vmm_record **at = chain_of(record->handle);
    while (*at != record)
        at = &(*at)->next;
    *at = record->next;
    record->is_listed = false;
    record->next = NULL;
}

void vmm_records_reset(void)
{
    for (uint32_t i = 0; i < chunk_count; i++)
        munmap(chunks[i], nodes_of(i) * sizeof *chunks[i]);
    if (chains != NULL)
        munmap(chains, chain_count * sizeof *chains);
    memset(chunks, 0, sizeof chunks);
    chunk_count = 0;
    free_list = NULL;
    chains = NULL;
    chain_count = 0;
}
