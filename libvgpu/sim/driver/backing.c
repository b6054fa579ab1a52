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

#include "driver.h"

#define GRANULE_BYTES 65536u
#define PAGE_BYTES 4096u
#define WORD_BITS 64u
#define HUGE_PAGE_BYTES (2u << 20)

static bool counts(const struct allocation *allocation)
{
    return allocation->kind == ALLOCATION_DEVICE || allocation->kind == ALLOCATION_MANAGED ||
           allocation->kind == ALLOCATION_POOL || allocation->kind == ALLOCATION_ARRAY;
}

static struct sim_device *device_behind(const struct allocation *allocation)
{
    return allocation->pool ? allocation->pool->device->device
                            : allocation->context->device->device;
}

static uint64_t granule_count(const struct allocation *allocation)
{
    return (allocation->bytes + GRANULE_BYTES - 1) / GRANULE_BYTES;
}

/* The last one ends with the allocation's last page. */
static uint64_t granule_bytes(const struct allocation *allocation, uint64_t granule)
{
    uint64_t mapped_bytes = (allocation->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint64_t left_bytes = mapped_bytes - granule * GRANULE_BYTES;
    return left_bytes < GRANULE_BYTES ? left_bytes : GRANULE_BYTES;
}

static bool is_large(const struct allocation *allocation)
{
    return granule_count(allocation) > WORD_BITS;
}

static uint64_t *word_of(struct allocation *allocation, uint64_t granule)
{
    return is_large(allocation) ? &allocation->backing.many[granule / WORD_BITS]
                                : &allocation->backing.few;
}

static bool is_backed(struct allocation *allocation, uint64_t granule)
{
    if (allocation->backing.bytes == 0)
        return false;
    return *word_of(allocation, granule) >> granule % WORD_BITS & 1;
}

/* Returns how much the granules of a region that do not count yet are; `mark` has them count. Rows
 * come in ascending order, so that a granule which two of them share is the last one seen. */
static uint64_t walk(struct allocation *allocation, const struct region *region, bool mark)
{
    uint64_t missing_bytes = 0, next_granule = 0;
    for (uint64_t slice = 0; slice < region->slices; slice++)
        for (uint64_t row = 0; row < region->rows; row++) {
            uint64_t offset = region->address - allocation->address +
                              slice * region->slice_pitch_bytes + row * region->pitch_bytes;
            uint64_t first = offset / GRANULE_BYTES;
            uint64_t last = (offset + region->width_bytes - 1) / GRANULE_BYTES;
            for (uint64_t i = first < next_granule ? next_granule : first; i <= last; i++) {
                if (is_backed(allocation, i))
                    continue;
                missing_bytes += granule_bytes(allocation, i);
                if (mark)
                    *word_of(allocation, i) |= 1ull << i % WORD_BITS;
            }
            next_granule = last + 1;
        }
    return missing_bytes;
}

/* Ready for the first bit: room for it, and no page of the kernel larger than a granule. */
static bool begin_backing(struct allocation *allocation)
{
    if (is_large(allocation) && !allocation->backing.many) {
        uint64_t words = (granule_count(allocation) + WORD_BITS - 1) / WORD_BITS;
        allocation->backing.many = calloc(words, sizeof *allocation->backing.many);
        if (!allocation->backing.many)
            return false;
    }
    if (allocation->bytes >= HUGE_PAGE_BYTES)
        madvise((void *)allocation->address, allocation->bytes, MADV_NOHUGEPAGE);
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
    uint64_t missing_bytes = walk(allocation, region, false);
    if (missing_bytes == 0)
        return CUDA_SUCCESS;
    if (allocation->backing.bytes == 0 && !begin_backing(allocation))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (sim_client_back(device_behind(allocation), missing_bytes) != 0) {
        tell_once();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    walk(allocation, region, true);
    allocation->backing.bytes += missing_bytes;
    return CUDA_SUCCESS;
}

CUresult backing_claim(const struct region *region)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_locked(region->address, region_span_bytes(region));
    CUresult result =
        allocation && counts(allocation) ? claim_locked(allocation, region) : CUDA_SUCCESS;
    pthread_mutex_unlock(&memory_mutex);
    return result;
}

void backing_give_up(struct allocation *allocation)
{
    if (allocation->backing.bytes)
        sim_client_unback(device_behind(allocation), allocation->backing.bytes);
    free(allocation->backing.many);
    allocation->backing = (struct backing){0};
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
    *run_end = end;
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_locked(address, end - address);
    bool backed = !allocation || !counts(allocation);
    if (!backed) {
        uint64_t last = (end - 1 - allocation->address) / GRANULE_BYTES;
        uint64_t granule = (address - allocation->address) / GRANULE_BYTES;
        backed = is_backed(allocation, granule);
        do
            granule++;
        while (granule <= last && is_backed(allocation, granule) == backed);
        if (granule <= last)
            *run_end = allocation->address + granule * GRANULE_BYTES;
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
