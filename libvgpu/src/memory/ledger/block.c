#include "memory/ledger/block.h"

#include <stdbool.h>
#include <stddef.h>

#include "driver/capture.h"
#include "driver/real.h"
#include "memory/ledger/charge.h"
#include "slice/ledger.h"
#include "slice/limits_file.h"
#include "slice/region.h"
#include "slice/waiting.h"

#define MIB ((uint64_t)1 << 20)
#define PROBE_BYTES (MIB + 1) /* too large to share a block of 2 MiB, the largest there is so far */
#define USUAL_BLOCK_BYTES (2 * MIB)
#define TRIES 4
#define BEING_ASKED 1 /* in `usage` */
#define MOST_WAITING_NS 20000000
#define POLL_NS 100000

/* A tenant's program may write what it likes into `usage`; slabs are found by a power of two. */
static bool is_sane(uint64_t bytes)
{
    return bytes >= BLOCK_STEP_BYTES && bytes <= VGPU_MOST_BLOCK_BYTES &&
           (bytes & (bytes - 1)) == 0;
}

/* By how much the device's free bytes fell. */
static uint64_t taken_by(CUdeviceptr *address, uint64_t bytes)
{
    size_t before_bytes = 0, after_bytes = 0, total_bytes;
    if (real.cuMemGetInfo_v2(&before_bytes, &total_bytes) != CUDA_SUCCESS ||
        real.cuMemAlloc_v2(address, bytes) != CUDA_SUCCESS) {
        *address = 0;
        return 0;
    }
    if (real.cuMemGetInfo_v2(&after_bytes, &total_bytes) != CUDA_SUCCESS)
        return 0;
    return before_bytes > after_bytes ? before_bytes - after_bytes : 0;
}

/* The bytes of a block, if two pieces agree; 0: they do not. */
static uint64_t probe(void)
{
    CUdeviceptr one = 0, other = 0;
    uint64_t block_bytes = taken_by(&one, PROBE_BYTES);
    uint64_t further_bytes = 0;
    bool is_exact = block_bytes == charge_rounded(PROBE_BYTES);
    if (block_bytes >= PROBE_BYTES && block_bytes <= VGPU_MOST_BLOCK_BYTES)
        further_bytes = taken_by(&other, block_bytes + 1);
    if (one != 0)
        real.cuMemFree_v2(one);
    if (other != 0)
        real.cuMemFree_v2(other);
    if (is_exact && further_bytes == charge_rounded(block_bytes + 1))
        return BLOCK_STEP_BYTES;
    return !is_exact && is_sane(block_bytes) && further_bytes == 2 * block_bytes ? block_bytes : 0;
}

/* Room for both pieces is reserved while they are there, past the counters: nobody is refused for a
 * question. 0: there is too little. */
static uint64_t ask(uint32_t device)
{
    struct ledger ledger = region_ledger(device);
    struct ledger_refusal refusal;
    uint64_t bytes = 0;
    if (real.cuMemGetInfo_v2 == NULL || real.cuMemAlloc_v2 == NULL || real.cuMemFree_v2 == NULL ||
        ledger_reserve(&ledger, region_slot(), 3 * USUAL_BLOCK_BYTES, &refusal) != 0)
        return 0;
    struct capture_pause pause = capture_pause();
    for (int i = 0; i < TRIES && bytes == 0; i++)
        bytes = probe();
    capture_resume(pause);
    ledger_release(&ledger, region_slot(), 3 * USUAL_BLOCK_BYTES);
    return bytes != 0 ? bytes : USUAL_BLOCK_BYTES;
}

/* Lets one process of the container ask, and the others wait for it; a short while, since it may have been
 * killed. */
static uint64_t find_out(uint32_t device)
{
    uint64_t *shared = &region_shared(device)->block_bytes;
    uint64_t found = 0, told = limits_device(region_limits(), device)->block_bytes;
    if (is_sane(told)) {
        __atomic_compare_exchange_n(shared, &found, told, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED);
        return told;
    }
    if (!__atomic_compare_exchange_n(shared, &found, BEING_ASKED, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        int64_t give_up_ns = waiting_now_ns() + MOST_WAITING_NS;
        while (found == BEING_ASKED && waiting_now_ns() < give_up_ns) {
            waiting_sleep_until(waiting_now_ns() + POLL_NS);
            found = __atomic_load_n(shared, __ATOMIC_ACQUIRE);
        }
        if (is_sane(found))
            return found;
    }
    found = ask(device);
    __atomic_store_n(shared, found, __ATOMIC_RELEASE);
    return found;
}

uint64_t block_known_bytes(uint32_t device)
{
    uint64_t bytes = __atomic_load_n(&region_shared(device)->block_bytes, __ATOMIC_RELAXED);
    return is_sane(bytes) ? bytes : BLOCK_STEP_BYTES;
}

uint64_t block_rounded(uint32_t device, uint64_t bytes)
{
    uint64_t above;
    uint64_t block_bytes = block_bytes_of(device);
    if (bytes <= block_bytes / 2)
        return charge_rounded(bytes);
    return __builtin_add_overflow(bytes, block_bytes - 1, &above)
               ? UINT64_MAX
               : above / block_bytes * block_bytes;
}

uint64_t block_bytes_of(uint32_t device)
{
    static uint64_t known[VGPU_MAX_DEVICES]; /* atomic; a forked child's devices are the same */
    uint64_t bytes = __atomic_load_n(&known[device], __ATOMIC_RELAXED);
    if (__builtin_expect(bytes != 0, 1))
        return bytes;
    bytes = __atomic_load_n(&region_shared(device)->block_bytes, __ATOMIC_ACQUIRE);
    if (!is_sane(bytes))
        bytes = find_out(device);
    if (bytes == 0) /* who has filled a slice had nobody ask: it is a small one */
        return BLOCK_STEP_BYTES;
    __atomic_store_n(&known[device], bytes, __ATOMIC_RELAXED);
    return bytes;
}
