#include "memory/ledger/slabs.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "memory/ledger/block.h"
#include "slice/locks.h"

#define PLACES 4096 /* of the table, each a list: more slabs than that are 8 GiB of small pieces */
#define RECORDS 256 /* that are mapped at a time */
#define WORD_BITS 64

struct slab {
    struct charge_owner owner; /* first: an owner is its slab */
    struct slab *next;         /* at the same place of the table, or that is free */
    uint64_t address;
    uint64_t used_bytes;
    uint64_t pieces;
    struct charge charge;
    uint64_t *units; /* while room is looked for: a bit for each step that is taken */
    uint64_t seen;   /* pieces that were found then */
};

static struct short_lock lock;
static struct slab *table[PLACES];
static struct slab *unused;

void slabs_after_fork(void)
{
    lock = (struct short_lock){0};
    memset(table, 0, sizeof table); /* the map of allocations forgets the pieces */
}

static uint64_t steps_of(uint64_t bytes)
{
    return (bytes + BLOCK_STEP_BYTES - 1) / BLOCK_STEP_BYTES;
}

/* ---- records; under the lock ---- */

static struct slab **place_of(uint64_t address)
{
    uint64_t mixed = (address >> 16) * 0x9e3779b97f4a7c15u;
    return &table[mixed >> 52];
}

static struct slab *find(uint64_t address)
{
    struct slab *slab = *place_of(address);
    while (slab != NULL && slab->address != address)
        slab = slab->next;
    return slab;
}

static struct slab *take_unused(void)
{
    if (unused == NULL) {
        struct slab *more = mmap(NULL, RECORDS * sizeof *more, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED)
            return NULL;
        for (int i = 0; i < RECORDS; i++) {
            more[i].next = unused;
            unused = &more[i];
        }
    }
    struct slab *slab = unused;
    unused = slab->next;
    return slab;
}

static void unlink_slab(struct slab *slab)
{
    struct slab **at = place_of(slab->address);
    while (*at != slab)
        at = &(*at)->next;
    *at = slab->next;
    slab->next = unused;
    unused = slab;
}

/* ---- pieces ---- */

static void release(struct charge_owner *owner, const struct allocation *allocation)
{
    struct slab *slab = (struct slab *)owner;
    short_lock_take(&lock, LOCK_SLABS);
    slab->used_bytes -= allocation->bytes;
    bool is_empty = --slab->pieces == 0;
    struct charge charge = slab->charge;
    if (is_empty)
        unlink_slab(slab);
    short_lock_give_back(&lock);
    if (is_empty)
        charge_cancel(&charge);
}

struct charge_owner *slabs_join(uint64_t address, uint64_t piece_bytes, uint64_t block_bytes,
                                const struct charge *charge, bool *is_new)
{
    uint64_t base = address & ~(block_bytes - 1);
    short_lock_take(&lock, LOCK_SLABS);
    struct slab *slab = find(base);
    *is_new = slab == NULL;
    if (slab == NULL && (slab = take_unused()) != NULL) {
        struct slab **at = place_of(base);
        *slab = (struct slab){.owner = {release}, .next = *at, .address = base, .charge = *charge};
        *at = slab;
    }
    if (slab != NULL) {
        slab->used_bytes += piece_bytes;
        slab->pieces++;
    }
    short_lock_give_back(&lock);
    return slab != NULL ? &slab->owner : NULL;
}

void slabs_pay(struct charge_owner *owner, const struct charge *charge)
{
    short_lock_take(&lock, LOCK_SLABS);
    ((struct slab *)owner)->charge = *charge;
    short_lock_give_back(&lock);
}

/* ---- room ---- */

static void mark(const struct allocation *allocation, void *unused_argument)
{
    struct charge_owner *owner = allocation->owner;
    (void)unused_argument;
    if (owner == NULL || owner->release != release || ((struct slab *)owner)->units == NULL)
        return;
    struct slab *slab = (struct slab *)owner;
    uint64_t first = (allocation->address - slab->address) / BLOCK_STEP_BYTES;
    slab->seen++;
    for (uint64_t unit = first; unit < first + steps_of(allocation->bytes); unit++)
        slab->units[unit / WORD_BITS] |= (uint64_t)1 << unit % WORD_BITS;
}

/* A piece that is not in the map by its address (it was freed in a stream's order, and is not reached) may
 * lie anywhere. */
static bool has_run(const struct slab *slab, uint64_t units, uint64_t wanted)
{
    uint64_t run = 0;
    if (slab->seen != slab->pieces)
        return false;
    for (uint64_t unit = 0; unit < units && run < wanted; unit++)
        run = slab->units[unit / WORD_BITS] >> unit % WORD_BITS & 1 ? 0 : run + 1;
    return run >= wanted;
}

static bool is_candidate(const struct slab *slab, int device, uint64_t piece_bytes,
                         uint64_t block_bytes)
{
    return slab->charge.device == device && block_bytes - slab->used_bytes >= piece_bytes;
}

/* Gives every slab that may have room a part of `words`, or takes it back; returns how many there are. */
static uint64_t hand_out(int device, uint64_t piece_bytes, uint64_t block_bytes, uint64_t *words)
{
    uint64_t count = 0;
    for (int place = 0; place < PLACES; place++)
        for (struct slab *slab = table[place]; slab != NULL; slab = slab->next) {
            slab->units = NULL;
            slab->seen = 0;
            if (!is_candidate(slab, device, piece_bytes, block_bytes))
                continue;
            if (words != NULL)
                slab->units = words + count * (steps_of(block_bytes) / WORD_BITS + 1);
            count++;
        }
    return count;
}

static bool any_has_run(uint64_t block_bytes, uint64_t piece_bytes)
{
    for (int place = 0; place < PLACES; place++)
        for (const struct slab *slab = table[place]; slab != NULL; slab = slab->next)
            if (slab->units != NULL && has_run(slab, steps_of(block_bytes), steps_of(piece_bytes)))
                return true;
    return false;
}

bool slabs_have_room(int device, uint64_t piece_bytes, uint64_t block_bytes)
{
    bool has_room = false;
    short_lock_take(&lock, LOCK_SLABS);
    uint64_t count = hand_out(device, piece_bytes, block_bytes, NULL);
    size_t size = count * (steps_of(block_bytes) / WORD_BITS + 1) * sizeof(uint64_t);
    void *words =
        count == 0 ? MAP_FAILED
                   : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words != MAP_FAILED) {
        hand_out(device, piece_bytes, block_bytes, words);
        allocation_map_each(SPACE_ADDRESS, mark, NULL);
        has_room = any_has_run(block_bytes, piece_bytes);
        hand_out(device, piece_bytes, block_bytes, NULL);
        munmap(words, size);
    }
    short_lock_give_back(&lock);
    return has_room;
}
