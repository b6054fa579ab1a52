#include "throttle.h"

#include <pthread.h>
#include <string.h>

#include "estimate.h"
#include "limits_file.h"
#include "region.h"
#include "share.h"
#include "timing.h"
#include "usage_file.h"
#include "waiting.h"

#define WHOLE_PERCENT 100
#define MOST_WAITING_NS 20000000 /* then the limit is read again: a raised one must not be slept over */
#define POLL_FIRST_NS 20000
#define POLL_MOST_NS 500000
#define STALE_AFTER_NS 200000 /* the GPU may have idled since the last launch of an open batch */
#define WAIT_FOR_GPU (-1)

/* What one device's launches share in this process. */
struct throttle {
    pthread_mutex_t lock;
    struct turns turns;
    struct timing timing;
    struct estimates estimates;
    int64_t in_flight_ns; /* charged and not measured yet */
    bool measure_next;    /* the last batch was lost: measure one launch alone */
};

static struct throttle throttles[VGPU_MAX_DEVICES]; /* all zero is ready to use */

static void reset_in_child(void)
{
    memset(throttles, 0, sizeof throttles);
}

static const struct vgpu_device_limit *limit_of(uint32_t device)
{
    return limits_device(region_limits(), device);
}

bool throttle_is_capped(uint32_t device)
{
    const struct vgpu_device_limit *limit = limit_of(device);
    /* Until there is an arbiter, an elastic share is held like a strict one, and left-overs (core 0)
     * are whatever the driver gives. */
    return limit->compute_mode != VGPU_COMPUTE_OFF && limit->core_percent > 0 &&
           limit->core_percent < WHOLE_PERCENT;
}

static uint32_t percent_of(uint32_t device)
{
    return throttle_is_capped(device) ? limit_of(device)->core_percent : WHOLE_PERCENT;
}

static struct vgpu_usage_device *shared_of(uint32_t device)
{
    return usage_device(region_usage(), device);
}

static void add_counter(uint64_t *counter, int64_t value)
{
    __atomic_fetch_add(counter, (uint64_t)value, __ATOMIC_RELAXED);
}

/* Takes a batch out of the books of what is in flight, with what is now known of it. */
static void settle(struct throttle *throttle, uint32_t device, const struct batch *batch,
                   bool is_measured, int64_t gpu_ns, int64_t now_ns)
{
    throttle->in_flight_ns -= batch->charged_ns;
    int64_t truth_ns = is_measured ? gpu_ns : batch->charged_ns;
    add_counter(&region_counters(device)->gpu_time_ns, truth_ns);
    if (is_measured)
        share_charge(shared_of(device), now_ns, truth_ns - batch->charged_ns, percent_of(device));
    if (batch->key == 0)
        return;
    struct estimate *estimate = estimate_find(&throttle->estimates, batch->key);
    estimate->unmeasured -= estimate->unmeasured < batch->launches ? estimate->unmeasured
                                                                   : batch->launches;
    if (is_measured)
        estimate_learn(estimate, gpu_ns, batch->launches);
}

static void harvest(struct throttle *throttle, uint32_t device, int64_t now_ns)
{
    struct batch batch;
    int64_t gpu_ns;
    int outcome;
    while ((outcome = timing_harvest(&throttle->timing, &batch, &gpu_ns)) != 0)
        settle(throttle, device, &batch, outcome > 0, gpu_ns, now_ns);
}

/* Leaves an open batch unmeasured; its estimates stand. */
static void give_up_open(struct throttle *throttle, uint32_t device, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&throttle->timing);
    if (open == NULL)
        return;
    struct batch batch = *open;
    timing_drop_open(&throttle->timing);
    settle(throttle, device, &batch, false, 0, now_ns);
    throttle->measure_next = true;
}

static void close_open(struct throttle *throttle, uint32_t device, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&throttle->timing);
    if (open == NULL)
        return;
    struct batch batch = *open;
    if (!timing_close(&throttle->timing, now_ns)) {
        settle(throttle, device, &batch, false, 0, now_ns);
        throttle->measure_next = true;
    }
}

/* 0: may start now; WAIT_FOR_GPU: not before a batch is measured; else a time to sleep until. */
static int64_t blocked_until(struct throttle *throttle, uint32_t device,
                             const struct estimate *estimate, int64_t now_ns, int64_t slack_ns)
{
    int64_t wait_ns = share_wait_ns(shared_of(device), now_ns, slack_ns);
    if (wait_ns > 0)
        return now_ns + wait_ns;
    if (estimate->samples == 0 && estimate->unmeasured > 0)
        return WAIT_FOR_GPU;
    if (throttle->in_flight_ns > 0 &&
        throttle->in_flight_ns + estimate->gpu_ns > THROTTLE_IN_FLIGHT_NS)
        return WAIT_FOR_GPU;
    return throttle->timing.count + 1 >= TIMING_BATCHES ? WAIT_FOR_GPU : 0;
}

/* Waits, unlocked, for one's turn and then until the launch may start. Returns locked. */
static int64_t wait_turn(struct throttle *throttle, uint32_t device, uint64_t key, int64_t now_ns)
{
    int64_t since_ns = now_ns;
    int64_t poll_ns = POLL_FIRST_NS;
    pthread_mutex_unlock(&throttle->lock);
    turns_enter(&throttle->turns);
    for (;;) {
        pthread_mutex_lock(&throttle->lock);
        now_ns = waiting_now_ns();
        harvest(throttle, device, now_ns);
        struct estimate *estimate = estimate_find(&throttle->estimates, key);
        int64_t until_ns = blocked_until(throttle, device, estimate, now_ns, 0);
        if (until_ns == 0)
            break;
        close_open(throttle, device, now_ns);
        if (until_ns == WAIT_FOR_GPU) {
            struct batch *oldest = timing_oldest(&throttle->timing);
            until_ns = now_ns + poll_ns;
            if (oldest == NULL)
                until_ns = now_ns; /* nothing to wait for after all: look again */
            else if (oldest->predicted_end_ns > until_ns)
                until_ns = oldest->predicted_end_ns;
            else if (poll_ns < POLL_MOST_NS)
                poll_ns *= 2;
        }
        pthread_mutex_unlock(&throttle->lock);
        if (until_ns > now_ns + MOST_WAITING_NS)
            until_ns = now_ns + MOST_WAITING_NS;
        waiting_sleep_until(until_ns);
    }
    turns_leave(&throttle->turns);
    add_counter(&region_counters(device)->held_ns, now_ns - since_ns);
    return now_ns;
}

/* Puts a launch that may start into a batch. True when the batch must end right behind it. */
static bool enlist(struct throttle *throttle, struct estimate *estimate, uint32_t device,
                   CUstream stream, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&throttle->timing);
    if (open != NULL && open->stream != stream)
        close_open(throttle, device, now_ns);
    if (timing_open_batch(&throttle->timing) == NULL &&
        !timing_open(&throttle->timing, stream, now_ns)) {
        add_counter(&region_counters(device)->gpu_time_ns, estimate->gpu_ns);
        return false; /* cannot be timed: its estimate stands */
    }
    open = timing_open_batch(&throttle->timing);
    open->key = open->launches == 0 || open->key == estimate->key ? estimate->key : 0;
    open->launches++;
    open->charged_ns += estimate->gpu_ns;
    open->last_launch_ns = now_ns;
    throttle->in_flight_ns += estimate->gpu_ns;
    if (estimate->samples == 0)
        estimate->unmeasured++;
    bool alone = throttle->measure_next || open->launches >= estimate_batch_limit(estimate);
    throttle->measure_next = false;
    return alone || open->charged_ns >= THROTTLE_BATCH_NS;
}

bool throttle_before(uint32_t device, uint64_t key, CUstream stream)
{
    struct throttle *throttle = &throttles[device];
    int64_t now_ns = waiting_now_ns();
    region_on_child(reset_in_child);
    share_enter(shared_of(device), now_ns);
    pthread_mutex_lock(&throttle->lock);
    struct batch *open = timing_open_batch(&throttle->timing);
    if (open != NULL && now_ns > open->last_launch_ns + open->charged_ns + STALE_AFTER_NS)
        give_up_open(throttle, device, now_ns);
    struct batch *oldest = timing_oldest(&throttle->timing);
    if (oldest != NULL && now_ns >= oldest->predicted_end_ns)
        harvest(throttle, device, now_ns);
    struct estimate *estimate = estimate_find(&throttle->estimates, key);
    if (turns_is_busy(&throttle->turns) ||
        blocked_until(throttle, device, estimate, now_ns, SHARE_SLACK_NS) != 0) {
        now_ns = wait_turn(throttle, device, key, now_ns);
        estimate = estimate_find(&throttle->estimates, key); /* it may have been replaced */
    }
    share_charge(shared_of(device), now_ns, estimate->gpu_ns, percent_of(device));
    bool ends_batch = enlist(throttle, estimate, device, stream, now_ns);
    add_counter(&region_counters(device)->launches, 1);
    pthread_mutex_unlock(&throttle->lock);
    return ends_batch;
}

void throttle_after(uint32_t device)
{
    struct throttle *throttle = &throttles[device];
    pthread_mutex_lock(&throttle->lock);
    close_open(throttle, device, waiting_now_ns());
    pthread_mutex_unlock(&throttle->lock);
}

void throttle_before_wait(void)
{
    if (region_open() != REGION_MAPPED)
        return;
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct throttle *throttle = &throttles[device];
        if (!__atomic_load_n(&throttle->timing.is_open, __ATOMIC_RELAXED))
            continue;
        pthread_mutex_lock(&throttle->lock);
        close_open(throttle, device, waiting_now_ns());
        pthread_mutex_unlock(&throttle->lock);
    }
}

void throttle_forget_context(CUcontext context)
{
    if (region_open() != REGION_MAPPED)
        return;
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct throttle *throttle = &throttles[device];
        pthread_mutex_lock(&throttle->lock);
        throttle->in_flight_ns -= timing_forget_context(&throttle->timing, context);
        pthread_mutex_unlock(&throttle->lock);
    }
}
