#include "memory/ledger/allocation_map.h"

#include <string.h>
#include <sys/mman.h>

#include "slice/locks.h"

#define SHARD_COUNT 64
#define FIRST_CAPACITY 64 /* entries; a power of two */

struct shard {
    struct short_lock lock;
    struct allocation *entries; /* capacity of them, address 0 is free */
    uint64_t capacity;
    uint64_t count;
} __attribute__((aligned(64)));

static struct shard shards[SHARD_COUNT]; /* all zero is an unlocked, empty shard */

/* Driver addresses are multiples of 256 and more: mix so that all bits count. */
static uint64_t hash(uint32_t space, uint64_t address)
{
    uint64_t mixed = (address >> 8 ^ address << 40 ^ space) * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 29;
}

static struct shard *shard_of(uint32_t space, uint64_t address)
{
    return &shards[hash(space, address) >> 58];
}

static uint64_t home_of(const struct shard *shard, uint32_t space, uint64_t address)
{
    return hash(space, address) & (shard->capacity - 1);
}

/* Where the handle is, or the free place where it would go. The table is never full. */
static uint64_t find(const struct shard *shard, uint32_t space, uint64_t address)
{
    const struct allocation *entries = shard->entries;
    uint64_t at = home_of(shard, space, address);
    while (entries[at].address != 0 &&
           (entries[at].address != address || entries[at].space != space))
        at = (at + 1) & (shard->capacity - 1);
    return at;
}

static bool grow(struct shard *shard)
{
    struct shard larger = {.capacity = shard->capacity ? 2 * shard->capacity : FIRST_CAPACITY};
    void *memory = mmap(NULL, larger.capacity * sizeof(struct allocation), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    larger.entries = memory;
    for (uint64_t i = 0; i < shard->capacity; i++)
        if (shard->entries[i].address != 0)
            larger.entries[find(&larger, shard->entries[i].space, shard->entries[i].address)] =
                shard->entries[i];
    if (shard->entries != NULL)
        munmap(shard->entries, shard->capacity * sizeof(struct allocation));
    shard->entries = larger.entries;
    shard->capacity = larger.capacity;
    return true;
}

/* Frees place `at` and moves later entries of its run back, so that no search stops short. */
static void remove_at(struct shard *shard, uint64_t at)
{
    uint64_t mask = shard->capacity - 1;
    uint64_t next = at;
    for (;;) {
        next = (next + 1) & mask;
        if (shard->entries[next].address == 0)
            break;
        uint64_t home = home_of(shard, shard->entries[next].space, shard->entries[next].address);
        if (((next - home) & mask) >= ((next - at) & mask)) {
            shard->entries[at] = shard->entries[next];
            at = next;
        }
    }
    memset(&shard->entries[at], 0, sizeof shard->entries[at]);
    shard->count--;
}

bool allocation_map_insert(const struct allocation *allocation, struct allocation *displaced)
{
    struct shard *shard = shard_of(allocation->space, allocation->address);
    bool done = true;
    short_lock_take(&shard->lock, LOCK_ALLOCATION_MAP);
    if (4 * (shard->count + 1) > 3 * shard->capacity)
        done = grow(shard);
    if (done) {
        uint64_t at = find(shard, allocation->space, allocation->address);
        if (shard->entries[at].address == 0)
            shard->count++;
        else
            *displaced = shard->entries[at];
        shard->entries[at] = *allocation;
    }
    short_lock_give_back(&shard->lock);
    return done;
}

/* Looks an entry up and copies it; takes it out if asked to. */
static bool look_up(uint32_t space, uint64_t address, struct allocation *result, bool takes)
{
    if (address == 0)
        return false;
    struct shard *shard = shard_of(space, address);
    bool found = false;
    short_lock_take(&shard->lock, LOCK_ALLOCATION_MAP);
    if (shard->count > 0) {
        uint64_t at = find(shard, space, address);
        found = shard->entries[at].address != 0;
        if (found) {
            *result = shard->entries[at];
            if (takes)
                remove_at(shard, at);
        }
    }
    short_lock_give_back(&shard->lock);
    return found;
}

bool allocation_map_take(enum allocation_space space, uint64_t address, struct allocation *taken)
{
    return look_up(space, address, taken, true);
}

bool allocation_map_find(enum allocation_space space, uint64_t address, struct allocation *found)
{
    return look_up(space, address, found, false);
}

void allocation_map_each(enum allocation_space space,
                         void (*look)(const struct allocation *allocation, void *argument),
                         void *argument)
{
    for (int i = 0; i < SHARD_COUNT; i++) {
        struct shard *shard = &shards[i];
        short_lock_take(&shard->lock, LOCK_ALLOCATION_MAP);
        for (uint64_t place = 0; place < shard->capacity; place++)
            if (shard->entries[place].address != 0 && shard->entries[place].space == space)
                look(&shard->entries[place], argument);
        short_lock_give_back(&shard->lock);
    }
}

bool allocation_map_take_of_context(uint64_t context, struct allocation_walk *walk,
                                    struct allocation *taken)
{
    for (; walk->shard < SHARD_COUNT; walk->shard++) {
        struct shard *shard = &shards[walk->shard];
        short_lock_take(&shard->lock, LOCK_ALLOCATION_MAP);
        /* From its beginning each time: since the last call other threads may have moved entries,
         * by growing the table or removing one whose run they belong to. */
        for (uint64_t place = 0; place < shard->capacity; place++) {
            if (shard->entries[place].address == 0 || shard->entries[place].context != context)
                continue;
            *taken = shard->entries[place];
            remove_at(shard, place);
            short_lock_give_back(&shard->lock);
            return true;
        }
        short_lock_give_back(&shard->lock);
    }
    return false;
}

void allocation_map_after_fork(void)
{
    for (int i = 0; i < SHARD_COUNT; i++) {
        if (shards[i].entries != NULL)
            munmap(shards[i].entries, shards[i].capacity * sizeof(struct allocation));
        memset(&shards[i], 0, sizeof shards[i]);
    }
}
