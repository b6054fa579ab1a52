/*
 * The cap on host memory behind device bytes. Device memory is lazily backed by the host's: without
 * a bound one cuMemsetD8 of a whole GPU would take as much of the host. So a write of the driver
 * (a copy, a fill) first counts the granules of 64 KiB that it is the first to touch, on the
 * device and against the cap of the machine; they count until the allocation is freed. Writing to
 * counted granules again costs a test of their bits.
 *
 * A fill with zero counts nothing: whole pages of granules that do not count are given back to the
 * kernel, which reads as zero whatever was there (a mapping that memory.c kept from an allocation
 * before, a store of the host into managed memory), and parts of pages are written only where they
 * are not zero already.
 *
 * The bits are guarded by memory_mutex; bytes move without it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "block.h"

#define GRANULE_BYTES 65536u
#define PAGE_BYTES 4096u
#define WORD_BITS 64u
#define HUGE_PAGE_BYTES (2u << 20)

/* The bits that an allocation goes by; NULL: it takes host memory that does not count. Several
 * mappings of one physical piece share its bits. What other processes have too is theirs as well,
 * and counts no further. */
static struct backing *backing_of(struct allocation *allocation)
{
    if (allocation->kind == ALLOCATION_MAPPED)
        return allocation->of_piece;
    bool counts = allocation->kind == ALLOCATION_DEVICE || allocation_is_managed(allocation) ||
                  allocation->kind == ALLOCATION_ARRAY || allocation->kind == ALLOCATION_OWN ||
                  (allocation->kind == ALLOCATION_POOL && !pool_on_host(allocation->pool));
    if (!counts || allocation->shared || allocation->external)
        return NULL;
    if (!allocation->block)
        return &allocation->backing;
    return allocation->block->shared ? NULL : &allocation->block->backing;
}

/* Where what the bits stand for begins, and its bytes: the block that an allocation lies in, or
 * itself. */
static uint64_t base_of(const struct allocation *allocation)
{
    return allocation->block ? allocation->block->address : allocation->address;
}

static uint64_t span_of(const struct allocation *allocation)
{
    return allocation->block ? allocation->block->bytes : allocation->bytes;
}

static uint64_t granule_count(const struct backing *backing)
{
    return (backing->span_bytes + GRANULE_BYTES - 1) / GRANULE_BYTES;
}

/* The last one ends with the last page. */
static uint64_t granule_bytes(const struct backing *backing, uint64_t granule)
{
    uint64_t mapped_bytes = (backing->span_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint64_t left_bytes = mapped_bytes - granule * GRANULE_BYTES;
    return left_bytes < GRANULE_BYTES ? left_bytes : GRANULE_BYTES;
}

static bool is_large(const struct backing *backing)
{
    return granule_count(backing) > WORD_BITS;
}

static uint64_t *word_of(struct backing *backing, uint64_t granule)
{
    return is_large(backing) ? &backing->many[granule / WORD_BITS] : &backing->few;
}

static bool is_backed(struct backing *backing, uint64_t granule)
{
    if (backing->bytes == 0)
        return false;
    return *word_of(backing, granule) >> granule % WORD_BITS & 1;
}

/* Returns how much the granules of a region that do not count yet are; `mark` has them count. Rows
 * come in ascending order, so that a granule which two of them share is the last one seen. */
static uint64_t walk(struct backing *backing, uint64_t base, const struct region *region, bool mark)
{
    uint64_t missing_bytes = 0, next_granule = 0;
    for (uint64_t slice = 0; slice < region->slices; slice++)
        for (uint64_t row = 0; row < region->rows; row++) {
            uint64_t offset = region->address - base + slice * region->slice_pitch_bytes +
                              row * region->pitch_bytes;
            uint64_t first = offset / GRANULE_BYTES;
            uint64_t last = (offset + region->width_bytes - 1) / GRANULE_BYTES;
            for (uint64_t i = first < next_granule ? next_granule : first; i <= last; i++) {
                if (is_backed(backing, i))
                    continue;
                missing_bytes += granule_bytes(backing, i);
                if (mark)
                    *word_of(backing, i) |= 1ull << i % WORD_BITS;
            }
            next_granule = last + 1;
        }
    return missing_bytes;
}

/* Ready for the first bit: room for it, and no page of the kernel larger than a granule. */
static bool begin_backing(struct allocation *allocation, struct backing *backing)
{
    if (is_large(backing) && !backing->many) {
        uint64_t words = (granule_count(backing) + WORD_BITS - 1) / WORD_BITS;
        backing->many = calloc(words, sizeof *backing->many);
        if (!backing->many)
            return false;
    }
    if (span_of(allocation) >= HUGE_PAGE_BYTES)
        madvise((void *)base_of(allocation), span_of(allocation), MADV_NOHUGEPAGE);
    return true;
}

static void tell_once(void)
{
    static bool told;
    if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
        dprintf(STDERR_FILENO,
                "simulated libcuda: out of memory: what is written to the GPUs of this machine "
                "may take %llu bytes of the host's memory in all, and this write needs more; "
                "make the machine with VGPU_SIM_HOST_MEMORY set to more, for example 64GiB\n",
                (unsigned long long)sim_machine_backing_bytes(driver.machine));
}

static CUresult claim_locked(struct allocation *allocation, const struct region *region)
{
    struct backing *backing = backing_of(allocation);
    if (!backing)
        return CUDA_SUCCESS;
    if (!backing->device) {
        backing->span_bytes = span_of(allocation);
        backing->device = allocation->pool ? allocation->pool->device : allocation->context->device;
    }
    uint64_t missing_bytes = walk(backing, base_of(allocation), region, false);
    if (missing_bytes == 0)
        return CUDA_SUCCESS;
    REFUSE_IF(backing->bytes == 0 && !begin_backing(allocation, backing), CUDA_ERROR_OUT_OF_MEMORY);
    if (sim_client_back(backing->device->device, missing_bytes) != 0) {
        tell_once();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    backing->bytes += missing_bytes; /* first: without any no bit is looked at */
    walk(backing, base_of(allocation), region, true);
    return CUDA_SUCCESS;
}

static uint64_t part_in(const struct allocation *allocation, uint64_t address, uint64_t bytes)
{
    uint64_t room_bytes = allocation->address + allocation->bytes - address;
    return bytes < room_bytes ? bytes : room_bytes;
}

/* Row by row and mapping by mapping, for a region that runs over several mappings. */
static CUresult claim_pieces_locked(const struct region *region)
{
    CUresult result = CUDA_SUCCESS;
    for (uint64_t row = 0; row < region->rows * region->slices; row++) {
        uint64_t address = region->address + row / region->rows * region->slice_pitch_bytes +
                           row % region->rows * region->pitch_bytes;
        uint64_t end = address + region->width_bytes;
        while (address < end && result == CUDA_SUCCESS) {
            struct allocation *allocation = memory_find_locked(address, 1);
            if (!allocation)
                break;
            struct region part = {.address = address,
                                  .width_bytes = part_in(allocation, address, end - address),
                                  .rows = 1,
                                  .slices = 1};
            result = claim_locked(allocation, &part);
            address += part.width_bytes;
        }
    }
    return result;
}

CUresult backing_claim(const struct region *region)
{
    uint64_t span_bytes = region_span_bytes(region);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_locked(region->address, span_bytes);
    if (allocation && part_in(allocation, region->address, span_bytes) == span_bytes)
        result = claim_locked(allocation, region);
    else if (allocation)
        result = claim_pieces_locked(region);
    pthread_mutex_unlock(&memory_mutex);
    return result;
}

void backing_give_up(struct backing *backing)
{
    if (backing->bytes)
        sim_client_unback(backing->device->device, backing->bytes);
    free(backing->many);
    *backing = (struct backing){0};
}

/* ---- zero ------------------------------------------------------------------------------------ */

static void clear_part_of_page(uint64_t address, uint64_t bytes)
{
    static const unsigned char zero[PAGE_BYTES];
    if (bytes && memcmp((const void *)address, zero, bytes) != 0)
        memset((void *)address, 0, bytes);
}

static void clear_unbacked(uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes;
    uint64_t first_page = (address + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint64_t last_page = end / PAGE_BYTES * PAGE_BYTES;
    if (first_page > last_page) { /* all inside one page */
        clear_part_of_page(address, bytes);
        return;
    }
    clear_part_of_page(address, first_page - address);
    if (last_page > first_page &&
        /* the first for mappings that processes share, the second for all others */
        madvise((void *)first_page, last_page - first_page, MADV_REMOVE) != 0 &&
        madvise((void *)first_page, last_page - first_page, MADV_DONTNEED) != 0)
        memset((void *)first_page, 0, last_page - first_page);
    clear_part_of_page(last_page, end - last_page);
}

/* Tells whether what begins at `address` counts, and up to where it is the same. */
static bool run_at(uint64_t address, uint64_t end, uint64_t *run_end)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_locked(address, 1);
    struct backing *backing = allocation ? backing_of(allocation) : NULL;
    bool backed = !backing;
    *run_end = allocation ? address + part_in(allocation, address, end - address) : end;
    if (backing) {
        uint64_t base = base_of(allocation);
        uint64_t last = (*run_end - 1 - base) / GRANULE_BYTES;
        uint64_t granule = (address - base) / GRANULE_BYTES;
        backed = is_backed(backing, granule);
        do
            granule++;
        while (granule <= last && is_backed(backing, granule) == backed);
        if (granule <= last)
            *run_end = base + granule * GRANULE_BYTES;
    }
    pthread_mutex_unlock(&memory_mutex);
    return backed;
}

void backing_clear(uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes, run_end;
    for (; address < end; address = run_end)
        if (run_at(address, end, &run_end))
            memset((void *)address, 0, run_end - address);
        else
            clear_unbacked(address, run_end - address);
}
