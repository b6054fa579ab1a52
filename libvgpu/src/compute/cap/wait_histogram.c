#include "compute/cap/wait_histogram.h"

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
