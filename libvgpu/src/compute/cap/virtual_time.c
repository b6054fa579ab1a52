#include "compute/cap/virtual_time.h"

#define FULL_PERCENT 100
#define MOST_DEBT_NS 3600000000000 /* an hour: beyond it the sums could overflow */

/* A tenant's program may have written any number. With it a sum wraps, which is garbage like it. */
static int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

int64_t virtual_time_cost_ns(int64_t gpu_ns, uint32_t percent)
{
    return gpu_ns * FULL_PERCENT / (percent == 0 ? 1 : percent);
}

void virtual_time_set_percent(struct vgpu_usage_device *device, int64_t now_ns, uint32_t percent)
{
    uint64_t before = __atomic_load_n(&device->counted_percent, __ATOMIC_RELAXED);
    if (before == percent || percent == 0 ||
        !__atomic_compare_exchange_n(&device->counted_percent, &before, percent, 0,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    if (before == 0 || before > FULL_PERCENT) /* nothing counted yet, or a tenant's garbage */
        return;
    int64_t virtual_ns = __atomic_load_n(&device->virtual_time_ns, __ATOMIC_RELAXED);
    int64_t moved_ns;
    do {
        int64_t ahead_ns = minus(virtual_ns, now_ns);
        if (virtual_ns == 0 || ahead_ns > MOST_DEBT_NS || ahead_ns < -MOST_DEBT_NS)
            return;
        moved_ns = now_ns + ahead_ns * (int64_t)before / percent;
    } while (!__atomic_compare_exchange_n(&device->virtual_time_ns, &virtual_ns, moved_ns, 0,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void virtual_time_enter(struct vgpu_usage_device *device, int64_t now_ns)
{
    int64_t virtual_ns = __atomic_load_n(&device->virtual_time_ns, __ATOMIC_RELAXED);
    /* A new container (V still 0) has saved nothing up. */
    int64_t least = virtual_ns == 0 ? now_ns : now_ns - VIRTUAL_TIME_BURST_NS;
    if (virtual_ns >= least)
        return;
    /* Behind by more than a burst: only a pause is clipped, not the time in which work ran. */
    int64_t busy_until = (int64_t)__atomic_load_n(&device->busy_until_ns, __ATOMIC_RELAXED);
    if (busy_until > now_ns)
        return;
    __atomic_compare_exchange_n(&device->virtual_time_ns, &virtual_ns, least, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

int64_t virtual_time_wait_ns(const struct vgpu_usage_device *device, int64_t now_ns,
                             int64_t slack_ns)
{
    int64_t ahead_ns = minus(__atomic_load_n(&device->virtual_time_ns, __ATOMIC_RELAXED), now_ns);
    int64_t least_ns = slack_ns < 0 ? slack_ns : 0;
    return ahead_ns > slack_ns ? ahead_ns - least_ns : 0;
}

int64_t virtual_time_left_ns(const struct vgpu_usage_device *device, int64_t now_ns)
{
    return minus(now_ns + VIRTUAL_TIME_SLACK_NS,
                 __atomic_load_n(&device->virtual_time_ns, __ATOMIC_RELAXED));
}

/* The end of the work in flight is no more than a prediction: of two that are stored at one moment
 * one may be lost. */
static int64_t busy_until(const struct vgpu_usage_device *device)
{
    return (int64_t)__atomic_load_n(&device->busy_until_ns, __ATOMIC_RELAXED);
}

static void set_busy_until(struct vgpu_usage_device *device, int64_t until_ns)
{
    __atomic_store_n(&device->busy_until_ns, (uint64_t)until_ns, __ATOMIC_RELAXED);
}

/* Moves the virtual time, and counts what was charged. */
static void move(struct vgpu_usage_device *device, int64_t gpu_ns, uint32_t percent)
{
    __atomic_fetch_add(&device->virtual_time_ns, virtual_time_cost_ns(gpu_ns, percent),
                       __ATOMIC_RELAXED);
    __atomic_fetch_add(&device->charged_ns, (uint64_t)gpu_ns, __ATOMIC_RELAXED);
}

void virtual_time_charge(struct vgpu_usage_device *device, int64_t now_ns, int64_t gpu_ns,
                         uint32_t percent)
{
    move(device, gpu_ns, percent);
    int64_t until_ns = busy_until(device);
    set_busy_until(device, plus(until_ns > now_ns ? until_ns : now_ns, gpu_ns));
}

void virtual_time_advance(struct vgpu_usage_device *device, int64_t gpu_ns, uint32_t percent)
{
    move(device, gpu_ns, percent);
}

void virtual_time_correct(struct vgpu_usage_device *device, int64_t now_ns, int64_t gpu_ns,
                          uint32_t percent)
{
    move(device, gpu_ns, percent);
    int64_t until_ns = busy_until(device);
    int64_t corrected_ns = plus(until_ns, gpu_ns);
    if (until_ns > now_ns)
        set_busy_until(device, corrected_ns > now_ns ? corrected_ns : now_ns);
}

void virtual_time_forgive(struct vgpu_usage_device *device, int64_t now_ns)
{
    int64_t virtual_ns = __atomic_load_n(&device->virtual_time_ns, __ATOMIC_RELAXED);
    while (virtual_ns > now_ns &&
           !__atomic_compare_exchange_n(&device->virtual_time_ns, &virtual_ns, now_ns, 0,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

int64_t virtual_time_busy_ns(const struct vgpu_usage_device *device, int64_t now_ns)
{
    int64_t until_ns = busy_until(device);
    return until_ns > now_ns ? until_ns - now_ns : 0;
}

void virtual_time_lasts(struct vgpu_usage_device *device, int64_t until_ns)
{
    if (busy_until(device) < until_ns)
        set_busy_until(device, until_ns);
}

void virtual_time_drained(struct vgpu_usage_device *device, int64_t now_ns)
{
    if (busy_until(device) > now_ns)
        set_busy_until(device, now_ns);
}
