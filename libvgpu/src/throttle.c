#include "throttle.h"

#include <pthread.h>
#include <string.h>

#include "estimate.h"
#include "flight.h"
#include "limits_file.h"
#include "region.h"
#include "share.h"
#include "waiting.h"

#define WHOLE_PERCENT 100
#define MOST_WAITING_NS \
    20000000 /* then the limit is read again: a raised one must not be slept over */
#define POLL_FIRST_NS 20000
#define POLL_MOST_NS 500000
#define WAIT_FOR_GPU (-1)
/* What is in flight may itself wait for what the program would do next (a kernel that polls host
 * memory, a stream that waits for a value), so a launch is never held for the GPU without end.
 * Launches whose length is known then wait for it no more until a measurement has come back: the
 * virtual time, moved by estimates, still holds the share. Those nobody has measured yet go one by
 * one, this far apart. */
#define MOST_GPU_WAIT_NS 50000000
/* A context that ends waits this long for its measurements, or a program could run its work in one
 * context after another unmeasured. The driver waits for the work anyway. */
#define MOST_ENDING_NS 2000000000

static struct flight flights[VGPU_MAX_DEVICES]; /* one a device; all zero is ready to use */

static void reset_in_child(void)
{
    memset(flights, 0, sizeof flights);
    flight_reset_lease();
}

static const struct vgpu_device_limit *limit_of(uint32_t device)
{
    return limits_device(region_limits(), device);
}

bool throttle_is_capped(uint32_t device)
{
    const struct vgpu_device_limit *limit = limit_of(device);
    /* Until there is an arbiter, an elastic share is held like a strict one, and left-overs (core
     * 0) are whatever the driver gives. */
    return limit->compute_mode != VGPU_COMPUTE_OFF && limit->core_percent > 0 &&
           limit->core_percent < WHOLE_PERCENT;
}

uint32_t throttle_percent(uint32_t device)
{
    return throttle_is_capped(device) ? limit_of(device)->core_percent : WHOLE_PERCENT;
}

/* 0: may start now; WAIT_FOR_GPU: not before a batch is measured; else a time to sleep until. */
static int64_t blocked_until(struct flight *flight, uint32_t device,
                             const struct estimate *estimate, int64_t now_ns, int64_t slack_ns)
{
    int64_t wait_ns = share_wait_ns(region_shared(device), now_ns, slack_ns);
    if (wait_ns > 0)
        return now_ns + wait_ns;
    if (estimate->samples == 0 && timing_holds(&flight->timing, estimate->key))
        return WAIT_FOR_GPU;
    if (flight->is_blind)
        return 0;
    if (flight->in_flight_ns > 0 && flight->in_flight_ns + estimate->gpu_ns > THROTTLE_IN_FLIGHT_NS)
        return WAIT_FOR_GPU;
    return flight->timing.count + 1 >= TIMING_BATCHES ? WAIT_FOR_GPU : 0;
}

/* Waits, unlocked, for one's turn and then until the launch may start. Returns locked. */
static int64_t wait_turn(struct flight *flight, uint32_t device, uint64_t key, int64_t now_ns)
{
    int64_t since_ns = now_ns;
    int64_t poll_ns = POLL_FIRST_NS;
    int64_t gpu_since_ns = 0;
    pthread_mutex_unlock(&flight->lock);
    turns_enter(&flight->turns);
    for (;;) {
        pthread_mutex_lock(&flight->lock);
        now_ns = waiting_now_ns();
        flight_harvest(flight, device, now_ns);
        share_set_percent(region_shared(device), now_ns, throttle_percent(device));
        struct estimate *estimate = estimate_find(&flight->estimates, key);
        int64_t until_ns = blocked_until(flight, device, estimate, now_ns, 0);
        if (until_ns == 0 || !throttle_is_capped(device))
            break;
        flight_close(flight, device, now_ns);
        if (until_ns == WAIT_FOR_GPU) {
            struct batch *oldest = timing_oldest(&flight->timing);
            gpu_since_ns = gpu_since_ns == 0 ? now_ns : gpu_since_ns;
            until_ns = now_ns + poll_ns;
            if (oldest == NULL || now_ns - gpu_since_ns > MOST_GPU_WAIT_NS + oldest->charged_ns) {
                flight->is_blind = estimate->samples > 0;
                break;
            }
            if (oldest->predicted_end_ns > until_ns)
                until_ns = oldest->predicted_end_ns;
            else if (poll_ns < POLL_MOST_NS)
                poll_ns *= 2;
        }
        pthread_mutex_unlock(&flight->lock);
        if (until_ns > now_ns + MOST_WAITING_NS)
            until_ns = now_ns + MOST_WAITING_NS;
        waiting_sleep_until(until_ns);
    }
    turns_leave(&flight->turns);
    region_add(&region_counters(device)->held_ns, now_ns - since_ns);
    return now_ns;
}

bool throttle_before(uint32_t device, const void *object, uint64_t blocks, CUstream stream)
{
    struct flight *flight = &flights[device];
    uint64_t key = estimate_key(object, blocks);
    int64_t now_ns = waiting_now_ns();
    region_on_child(reset_in_child);
    share_set_percent(region_shared(device), now_ns, throttle_percent(device));
    share_enter(region_shared(device), now_ns);
    pthread_mutex_lock(&flight->lock);
    flight_revoke(flight, device, now_ns);
    flight_drop_stale(flight, device, now_ns);
    struct batch *oldest = timing_oldest(&flight->timing);
    if (oldest != NULL && now_ns >= oldest->predicted_end_ns)
        flight_harvest(flight, device, now_ns);
    struct estimate *estimate = estimate_find(&flight->estimates, key);
    if (turns_is_busy(&flight->turns) ||
        blocked_until(flight, device, estimate, now_ns, SHARE_SLACK_NS) != 0) {
        now_ns = wait_turn(flight, device, key, now_ns);
        estimate = estimate_find(&flight->estimates, key); /* it may have been replaced */
    }
    bool ends_batch = flight_enlist(flight, device, estimate, stream, now_ns);
    if (!ends_batch && timing_open_batch(&flight->timing) != NULL)
        flight_grant(flight, device, estimate, object, blocks, now_ns);
    pthread_mutex_unlock(&flight->lock);
    return ends_batch;
}

void throttle_after(uint32_t device)
{
    struct flight *flight = &flights[device];
    pthread_mutex_lock(&flight->lock);
    flight_close_behind(flight, device, waiting_now_ns());
    pthread_mutex_unlock(&flight->lock);
}

void throttle_before_wait(void)
{
    if (region_open() != REGION_MAPPED)
        return;
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct flight *flight = &flights[device];
        if (!__atomic_load_n(&flight->timing.is_open, __ATOMIC_RELAXED))
            continue;
        pthread_mutex_lock(&flight->lock);
        const struct batch *open = timing_open_batch(&flight->timing);
        if (open != NULL && !open->ends_behind) /* else its own launch is about to close it */
            flight_close(flight, device, waiting_now_ns());
        pthread_mutex_unlock(&flight->lock);
    }
}

/* True while a batch of that context is not measured. */
static bool is_running(const struct timing *timing, CUcontext context)
{
    for (uint32_t i = 0; i < timing->count; i++)
        if (timing->ring[(timing->first + i) % TIMING_BATCHES].context == context)
            return true;
    return false;
}

void throttle_forget_context(CUcontext context)
{
    if (region_open() != REGION_MAPPED || context == NULL)
        return;
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct flight *flight = &flights[device];
        int64_t give_up_ns = waiting_now_ns() + MOST_ENDING_NS;
        pthread_mutex_lock(&flight->lock);
        flight_close(flight, device, waiting_now_ns());
        flight_harvest(flight, device, waiting_now_ns());
        while (is_running(&flight->timing, context) && waiting_now_ns() < give_up_ns) {
            pthread_mutex_unlock(&flight->lock);
            waiting_sleep_until(waiting_now_ns() + POLL_MOST_NS);
            pthread_mutex_lock(&flight->lock);
            flight_harvest(flight, device, waiting_now_ns());
        }
        flight_forget(flight, device, context, waiting_now_ns());
        pthread_mutex_unlock(&flight->lock);
    }
}
