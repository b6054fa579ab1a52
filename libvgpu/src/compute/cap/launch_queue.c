#include "compute/cap/launch_queue.h"

#include "slice/usage_file.h"

#define SLOT_BITS 9 /* of `served`; the rest is the time, without its highest bits */
_Static_assert(VGPU_SLOT_COUNT == 1 << SLOT_BITS, "a slot fits");

/* ---- who came first ---- */

static int64_t load(const uint64_t *field)
{
    return (int64_t)__atomic_load_n(field, __ATOMIC_ACQUIRE);
}

static bool counts(int64_t until_ns, int64_t now_ns)
{
    return until_ns > now_ns && until_ns - now_ns <= ARRIVAL_MOST_NS;
}

void arrival_wait(void *usage, uint32_t device, uint32_t slot, int64_t since_ns, int64_t until_ns)
{
    struct vgpu_usage_slot_device *own = usage_slot_device(usage, slot, device);
    struct vgpu_usage_device *shared = usage_device(usage, device);
    uint64_t counts_until_ns = (uint64_t)(until_ns + ARRIVAL_GRACE_NS);
    __atomic_store_n(&own->waits_until_ns, counts_until_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&own->waits_since_ns, (uint64_t)since_ns, __ATOMIC_RELEASE);
    uint64_t latest_ns = __atomic_load_n(&shared->waits_until_ns, __ATOMIC_RELAXED);
    while ((int64_t)(latest_ns - counts_until_ns) < 0 &&
           !__atomic_compare_exchange_n(&shared->waits_until_ns, &latest_ns, counts_until_ns, 0,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

void arrival_leave(void *usage, uint32_t device, uint32_t slot)
{
    struct vgpu_usage_slot_device *own = usage_slot_device(usage, slot, device);
    __atomic_store_n(&own->waits_since_ns, 0, __ATOMIC_RELEASE);
}

void arrival_serve(void *usage, uint32_t device, uint32_t slot, int64_t now_ns)
{
    __atomic_store_n(&usage_device(usage, device)->served, (uint64_t)now_ns << SLOT_BITS | slot,
                     __ATOMIC_RELEASE);
    arrival_leave(usage, device, slot);
}

enum arrival_who arrival_served(void *usage, uint32_t device, uint32_t slot, int64_t now_ns)
{
    uint64_t served = __atomic_load_n(&usage_device(usage, device)->served, __ATOMIC_ACQUIRE);
    uint64_t who = served % VGPU_SLOT_COUNT;
    if ((((uint64_t)now_ns << SLOT_BITS) - (served - who)) >> SLOT_BITS >= ARRIVAL_SERVED_NS)
        return ARRIVAL_NOBODY;
    return who == slot ? ARRIVAL_OWN : ARRIVAL_OTHER;
}

bool arrival_is_behind(void *usage, uint32_t device, uint32_t slot, int64_t since_ns,
                       int64_t now_ns)
{
    const struct vgpu_usage_header *header = usage;
    if (load(&usage_device(usage, device)->waits_until_ns) <= now_ns)
        return false;
    uint32_t used = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    for (uint32_t other = 0; other < used && other < VGPU_SLOT_COUNT; other++) {
        const struct vgpu_usage_slot_device *waiter = usage_slot_device(usage, other, device);
        int64_t other_ns = load(&waiter->waits_since_ns);
        if (other == slot || other_ns == 0 || !counts(load(&waiter->waits_until_ns), now_ns))
            continue;
        if (other_ns < since_ns || (other_ns == since_ns && other < slot))
            return true;
    }
    return false;
}

/* ---- how long they waited ---- */

static uint32_t bucket_of(int64_t waited_ns)
{
    if (waited_ns < WAIT_HISTOGRAM_FIRST_NS)
        return 0; /* also a negative one, of a caller whose clock was wrong */
    uint32_t doublings =
        63 - (uint32_t)__builtin_clzll((uint64_t)waited_ns / WAIT_HISTOGRAM_FIRST_NS);
    return doublings + 1 < VGPU_DELAY_BUCKETS ? doublings + 1 : VGPU_DELAY_BUCKETS - 1;
}

void wait_histogram_note(struct vgpu_usage_slot_device *counters, int64_t waited_ns)
{
    uint16_t *counts = counters->delay_counts;
    uint16_t *own = &counts[bucket_of(waited_ns)];
    if (*own == UINT16_MAX)
        for (uint32_t i = 0; i < VGPU_DELAY_BUCKETS; i++)
            __atomic_store_n(&counts[i], (uint16_t)(counts[i] / 2), __ATOMIC_RELAXED);
    __atomic_store_n(own, (uint16_t)(*own + 1), __ATOMIC_RELAXED);
}
