/*
 * Managed memory that a GPU gives as it is touched (calibration: managed_as_touched): nothing at the
 * call; a block at a time where the device writes to it by a copy or a fill, and where it is
 * prefetched there; given back where it is prefetched to the host, and with its allocation. It is
 * taken of the device of the context that allocated it, whichever device touches it. What finds no
 * room there stays on the host, as a real driver would have it or something else evicted. Which
 * memory kernels touch is not known.
 *
 * What is charged is guarded by memory_mutex.
 */
#include <stdlib.h>

#include "block.h"
#include "managed.h"

#define WORD_BITS 64u

static bool any; /* such memory was ever allocated */

void managed_touch_expect(void)
{
    __atomic_store_n(&any, true, __ATOMIC_RELAXED);
}

static struct allocation *find_locked(uint64_t address, uint64_t bytes)
{
    struct allocation *found = memory_find_locked(address, bytes);
    return found && allocation_is_managed(found) && found->block && !found->block->charged ? found
                                                                                           : NULL;
}

static bool begin_bits(struct allocation *allocation, uint64_t step_bytes)
{
    uint64_t words = (allocation->block->bytes / step_bytes + WORD_BITS - 1) / WORD_BITS;
    if (!allocation->touched)
        allocation->touched = calloc(words, sizeof *allocation->touched);
    return allocation->touched != NULL;
}

/* Returns false where a block finds no room. */
static bool take_locked(struct allocation *allocation, uint64_t first, uint64_t last,
                        uint64_t step_bytes)
{
    struct driver_device *device = allocation->context->device;
    for (uint64_t i = first; i <= last; i++) {
        uint64_t bit = 1ull << i % WORD_BITS, *word = &allocation->touched[i / WORD_BITS];
        if (*word & bit)
            continue;
        if (sim_client_reserve(device->device, step_bytes, device->cap_bytes) != 0)
            return false;
        *word |= bit;
        allocation->charged_bytes += step_bytes;
    }
    return true;
}

static bool touch(uint64_t address, uint64_t bytes, struct driver_device **device)
{
    bool good = true;
    pthread_mutex_lock(&memory_mutex);
    struct allocation *found = find_locked(address, bytes);
    uint64_t step_bytes = found ? block_round(found->context->device, 1) : 0;
    if (found && begin_bits(found, step_bytes)) {
        *device = found->context->device;
        good = take_locked(found, (address - found->address) / step_bytes,
                           (address + bytes - 1 - found->address) / step_bytes, step_bytes);
    }
    pthread_mutex_unlock(&memory_mutex);
    return good;
}

void managed_touch(uint64_t address, uint64_t bytes)
{
    struct driver_device *device;
    if (!__atomic_load_n(&any, __ATOMIC_RELAXED) || bytes == 0 || touch(address, bytes, &device))
        return;
    pool_trim_device(device, false);
    touch(address, bytes, &device);
}

void managed_leave(uint64_t address, uint64_t bytes)
{
    uint64_t given_bytes = 0;
    pthread_mutex_lock(&memory_mutex);
    struct allocation *found = bytes ? find_locked(address, bytes) : NULL;
    if (found && found->touched) {
        uint64_t step_bytes = block_round(found->context->device, 1);
        uint64_t end = address + bytes - found->address;
        /* parts of blocks stay, but for the end of the allocation */
        uint64_t behind = end == found->bytes ? found->block->bytes : end;
        for (uint64_t i = (address - found->address + step_bytes - 1) / step_bytes;
             i < behind / step_bytes; i++)
            if (found->touched[i / WORD_BITS] >> i % WORD_BITS & 1) {
                found->touched[i / WORD_BITS] &= ~(1ull << i % WORD_BITS);
                given_bytes += step_bytes;
            }
        found->charged_bytes -= given_bytes;
        if (given_bytes)
            sim_client_release(found->context->device->device, given_bytes);
    }
    pthread_mutex_unlock(&memory_mutex);
}
