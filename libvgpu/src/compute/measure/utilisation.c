#include "compute/measure/utilisation.h"

#include "slice/usage_file.h"

#define WHOLE_PERCENT 100
#define SHORTEST_NS 20000000 /* below it one batch more or less is all there is to see */

static uint64_t load(const uint64_t *field)
{
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}

static uint32_t slots_used(const void *usage)
{
    const struct vgpu_usage_header *header = usage;
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    return hi_slot < VGPU_SLOT_COUNT ? hi_slot : VGPU_SLOT_COUNT;
}

/* GPU time that a slot's process has had. Of what is in flight as much as there was time for. */
static uint64_t done_ns(const struct vgpu_usage_slot_device *counters, uint64_t now_ns)
{
    uint64_t in_flight = load(&counters->in_flight_ns);
    uint64_t since_ns = load(&counters->in_flight_since_ns);
    uint64_t elapsed = now_ns > since_ns ? now_ns - since_ns : 0;
    return load(&counters->gpu_time_ns) + (in_flight < elapsed ? in_flight : elapsed);
}

void utilisation_sample(void *usage, uint32_t device, uint64_t now_ns)
{
    struct vgpu_usage_device *shared = usage_device(usage, device);
    uint64_t last_ns = load(&shared->sampling_ns);
    /* One from the future (another boot's, a tenant's garbage) is as good as an old one. */
    if (now_ns - last_ns < UTILISATION_SAMPLE_NS ||
        !__atomic_compare_exchange_n(&shared->sampling_ns, &last_ns, now_ns, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return;
    uint64_t count = load(&shared->sample_count);
    for (uint32_t slot = 0; slot < slots_used(usage); slot++) {
        struct vgpu_usage_slot_device *counters = usage_slot_device(usage, slot, device);
        __atomic_store_n(&counters->sampled_gpu_ns[count & 1], done_ns(counters, now_ns),
                         __ATOMIC_RELAXED);
    }
    __atomic_store_n(&shared->sampled_at_ns[count & 1], now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->sample_count, count + 1, __ATOMIC_RELEASE);
}

struct utilisation_window utilisation_window(void *usage, uint32_t device, uint64_t now_ns)
{
    const struct vgpu_usage_device *shared = usage_device(usage, device);
    uint64_t count = __atomic_load_n(&shared->sample_count, __ATOMIC_ACQUIRE);
    struct utilisation_window newest = {.now_ns = now_ns, .sample = (count - 1) & 1};
    struct utilisation_window older = {.now_ns = now_ns, .sample = count & 1};
    uint64_t newest_at_ns = load(&shared->sampled_at_ns[newest.sample]);
    uint64_t older_at_ns = load(&shared->sampled_at_ns[older.sample]);
    if (count > 0 && newest_at_ns < now_ns)
        newest.length_ns = now_ns - newest_at_ns;
    if (count > 1 && older_at_ns < now_ns)
        older.length_ns = now_ns - older_at_ns;
    if (newest.length_ns >= UTILISATION_LEAST_NS || older.length_ns == 0)
        return newest;
    if (older.length_ns <= UTILISATION_MOST_NS || newest.length_ns < SHORTEST_NS)
        return older;
    return newest; /* work has begun again a moment ago */
}

static uint64_t busy_ns(void *usage, uint32_t slot, uint32_t device,
                        const struct utilisation_window *window)
{
    const struct vgpu_usage_slot_device *counters = usage_slot_device(usage, slot, device);
    uint64_t before = load(&counters->sampled_gpu_ns[window->sample & 1]);
    uint64_t now = done_ns(counters, window->now_ns);
    uint64_t busy = now > before ? now - before : 0;
    return busy < window->length_ns ? busy : window->length_ns;
}

static uint32_t percent_of(uint64_t busy, uint64_t length)
{
    if (length == 0)
        return 0;
    if (busy >= length)
        return WHOLE_PERCENT;
    return (uint32_t)((double)busy * WHOLE_PERCENT / (double)length + 0.5);
}

uint32_t utilisation_of_slot(void *usage, uint32_t slot, uint32_t device,
                             const struct utilisation_window *window)
{
    return percent_of(busy_ns(usage, slot, device, window), window->length_ns);
}

uint32_t utilisation_of_container(void *usage, uint32_t device,
                                  const struct utilisation_window *window)
{
    uint64_t busy = 0;
    for (uint32_t slot = 0; slot < slots_used(usage); slot++)
        busy += busy_ns(usage, slot, device, window);
    return percent_of(busy, window->length_ns);
}
