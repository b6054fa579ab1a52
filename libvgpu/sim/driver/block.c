#include "block.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "ipc.h"

#define UNIT_BYTES 512u
#define WORD_BITS 64u
/* What is larger is aligned to this. */
#define LARGE_BYTES (32ull << 20)
/* Where addresses begin: far from what the kernel gives out by itself. A place that something else
 * has is passed by, so often, in ever longer steps. */
#define FIRST_ADDRESS 0x200000000000ull
#define ATTEMPTS 16

static pthread_mutex_t block_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks; /* by address */
/* Up to the end of this one no address of a block is free; NULL: that is not known of any. */
static struct block *packed;
/* No slab of the context before this one has room for so many units. */
static struct {
    const struct CUctx_st *context;
    uint64_t units;
    struct block *slab;
} full;

static const struct sim_calibration *calibration_of(const struct driver_device *device)
{
    return &device->identity->profile.calibration;
}

bool block_wanted(const struct driver_device *device)
{
    return calibration_of(device)->block_bytes > UNIT_BYTES;
}

static uint64_t round_up(uint64_t bytes, uint64_t step_bytes)
{
    return (bytes + step_bytes - 1) / step_bytes * step_bytes;
}

uint64_t block_round(const struct driver_device *device, uint64_t bytes)
{
    return round_up(bytes, calibration_of(device)->block_bytes);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void *map_at(uint64_t address, uint64_t bytes)
{
    void *mapped = mmap((void *)address, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* Anywhere, where the usual addresses cannot be had. */
static uint64_t map_aligned(uint64_t bytes, uint64_t alignment)
{
    uint64_t whole = bytes + alignment;
    uint64_t start = whole > bytes ? (uint64_t)map_at(0, whole) : 0;
    if (!start)
        return 0;
    uint64_t address = round_up(start, alignment);
    if (address > start)
        munmap((void *)start, address - start);
    if (start + whole > address + bytes)
        munmap((void *)(address + bytes), start + whole - address - bytes);
    return address;
}

/* The first address from `from` on that is free behind `*previous`, which moves up to the block that
 * the address comes behind. */
static uint64_t next_room(struct block **previous, uint64_t from, uint64_t bytes,
                          uint64_t alignment)
{
    for (;;) {
        struct block *next = *previous ? (*previous)->next : blocks;
        uint64_t start = *previous ? (*previous)->address + (*previous)->bytes : FIRST_ADDRESS;
        uint64_t address = round_up(start > from ? start : from, alignment);
        if (!next || (address < next->address && bytes <= next->address - address))
            return address;
        *previous = next;
    }
}

/* Passes by blocks that touch each other. */
static void pack(void)
{
    struct block *next = packed ? packed->next : blocks;
    while (next && next->address == (packed ? packed->address + packed->bytes : FIRST_ADDRESS)) {
        packed = next;
        next = packed->next;
    }
}

static void link_locked(struct block *block)
{
    struct block *previous = packed && packed->address < block->address ? packed : NULL;
    struct block *next = previous ? previous->next : blocks;
    for (; next && next->address < block->address; next = next->next)
        previous = next;
    block->previous = previous;
    block->next = next;
    *(previous ? &previous->next : &blocks) = block;
    if (next)
        next->previous = block;
}

static bool map_locked(struct block *block)
{
    uint64_t alignment = block->bytes > LARGE_BYTES
                             ? LARGE_BYTES
                             : calibration_of(block->context->device)->block_bytes;
    pack();
    struct block *previous = packed;
    uint64_t from = 0;
    for (int i = 0; i < ATTEMPTS && !block->address; i++) {
        uint64_t address = next_room(&previous, from, block->bytes, alignment);
        void *mapped = map_at(address, block->bytes);
        if ((uint64_t)mapped == address)
            block->address = address;
        else if (mapped)
            munmap(mapped, block->bytes);
        from = address + (alignment << i);
    }
    if (!block->address)
        block->address = map_aligned(block->bytes, alignment);
    if (block->address)
        link_locked(block);
    return block->address != 0;
}

static void unlink_locked(struct block *block)
{
    if (packed && block->address <= packed->address)
        packed = block->previous;
    if (full.slab == block)
        full.context = NULL;
    *(block->previous ? &block->previous->next : &blocks) = block->next;
    if (block->next)
        block->next->previous = block->previous;
}

/* ---- slabs ----------------------------------------------------------------------------------- */

static bool is_taken(const struct block *slab, uint64_t unit)
{
    return slab->units[unit / WORD_BITS] >> unit % WORD_BITS & 1;
}

static void mark(struct block *slab, uint64_t first, uint64_t count, bool taken)
{
    for (uint64_t unit = first; unit < first + count; unit++)
        if (taken)
            slab->units[unit / WORD_BITS] |= 1ull << unit % WORD_BITS;
        else
            slab->units[unit / WORD_BITS] &= ~(1ull << unit % WORD_BITS);
    slab->unit_count = taken ? slab->unit_count + count : slab->unit_count - count;
}

/* Finds the first run of free units; false: there is none so long. */
static bool find_room(const struct block *slab, uint64_t count, uint64_t *first)
{
    uint64_t units = slab->bytes / UNIT_BYTES, free_units = 0;
    if (count > units - slab->unit_count)
        return false;
    for (uint64_t unit = 0; unit < units; unit++) {
        if (unit % WORD_BITS == 0 && slab->units[unit / WORD_BITS] == UINT64_MAX) {
            free_units = 0;
            unit += WORD_BITS - 1;
            continue;
        }
        free_units = is_taken(slab, unit) ? 0 : free_units + 1;
        if (free_units == count) {
            *first = unit + 1 - count;
            return true;
        }
    }
    return false;
}

/* The first slab of a context that has room; NULL: none has. */
static struct block *find_slab_locked(const struct CUctx_st *context, uint64_t count,
                                      uint64_t *first)
{
    bool known = full.context == context && full.units <= count;
    struct block *slab = known ? full.slab : blocks;
    while (slab && (slab->context != context || !slab->units || !find_room(slab, count, first)))
        slab = slab->next;
    full.context = slab ? context : NULL;
    full.units = count;
    full.slab = slab;
    return slab;
}

/* ---- taking and giving back ------------------------------------------------------------------ */

static struct block *make_locked(struct CUctx_st *context, uint64_t bytes, bool charged, bool slab)
{
    struct block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    *block = (struct block){.bytes = bytes, .context = context, .charged = charged};
    uint64_t words = (bytes / UNIT_BYTES + WORD_BITS - 1) / WORD_BITS;
    bool good = !slab || (block->units = calloc(words, sizeof *block->units)) != NULL;
    if (good && charged && memory_reserve(context->device, bytes) != 0)
        good = block->charged = false;
    if (good && map_locked(block))
        return block;
    if (block->charged)
        sim_client_release(context->device->device, bytes);
    free(block->units);
    free(block);
    return NULL;
}

CUresult block_take(struct CUctx_st *context, uint64_t bytes, bool charged, struct block **block,
                    CUdeviceptr *address, uint64_t *moved)
{
    const struct sim_calibration *calibration = calibration_of(context->device);
    uint64_t units = round_up(bytes, UNIT_BYTES) / UNIT_BYTES, first = 0;
    bool small = charged && bytes <= calibration->small_bytes &&
                 round_up(bytes, UNIT_BYTES) <= calibration->block_bytes;
    uint64_t whole_bytes = small ? calibration->block_bytes : block_round(context->device, bytes);
    REFUSE_IF(whole_bytes < bytes || (charged && memory_fails(context->device)),
              CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&block_mutex);
    struct block *found = small ? find_slab_locked(context, units, &first) : NULL;
    *moved = found ? 0 : whole_bytes;
    if (!found) {
        found = make_locked(context, whole_bytes, charged, small);
        if (found && small) { /* all others are known to have no room */
            full.context = context;
            full.units = units;
            full.slab = found;
        }
    }
    if (found && small)
        mark(found, first, units, true);
    pthread_mutex_unlock(&block_mutex);
    REFUSE_IF(!found, CUDA_ERROR_OUT_OF_MEMORY);
    *block = found;
    *address = found->address + first * UNIT_BYTES;
    return CUDA_SUCCESS;
}

uint64_t block_give(struct block *block, uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&block_mutex);
    if (block->units) {
        mark(block, (address - block->address) / UNIT_BYTES,
             round_up(bytes, UNIT_BYTES) / UNIT_BYTES, false);
        if (full.context == block->context && full.slab->address > block->address)
            full.slab = block;
    }
    bool last = !block->units || block->unit_count == 0;
    if (last)
        unlink_locked(block);
    pthread_mutex_unlock(&block_mutex);
    if (!last)
        return 0;
    uint64_t whole_bytes = block->bytes;
    backing_give_up(&block->backing);
    munmap((void *)block->address, block->bytes);
    if (block->shared)
        ipc_end_shared(block->shared);
    else if (block->charged)
        sim_client_release(block->context->device->device, block->bytes);
    free(block->shared);
    free(block->units);
    free(block);
    return whole_bytes;
}
