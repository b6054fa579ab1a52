#include "flight.h"

#include <string.h>

#include "capture.h"
#include "lease.h"
#include "region.h"
#include "share.h"
#include "throttle.h"
#include "utilisation.h"

#define LEAST_ESTIMATE_NS 100
#define MOST_GIVEN_UP 2

struct lease lease;

/* What a launch of this kind is charged. */
static int64_t price_of(const struct estimate *estimate)
{
    return estimate->gpu_ns > LEAST_ESTIMATE_NS ? estimate->gpu_ns : LEAST_ESTIMATE_NS;
}

void flight_reset_lease(void)
{
    memset(&lease, 0, sizeof lease);
}

/* Spreads what a batch took over its kinds of launch, in proportion to what each was expected to
 * take. */
static void learn(struct flight *flight, const struct batch *batch, int64_t gpu_ns)
{
    double ratio = batch->charged_ns > 0 ? (double)gpu_ns / (double)batch->charged_ns : 1;
    for (uint32_t i = 0; i < batch->kind_count; i++) {
        uint32_t launches = batch->kinds[i].launches;
        if (launches == 0)
            continue;
        struct estimate *estimate = estimate_find(&flight->estimates, batch->kinds[i].key);
        double own_ns = batch->kind_count == 1
                            ? (double)gpu_ns
                            : (double)price_of(estimate) * (double)launches * ratio;
        estimate_learn(estimate, (int64_t)own_ns, launches);
    }
}

/* Shows what is in flight to those who ask for the utilisation. Of what was in flight before, some
 * ran until now if `is_settled`. */
static void show_in_flight(const struct flight *flight, uint32_t device, bool is_settled,
                           int64_t now_ns)
{
    struct vgpu_usage_slot_device *counters = region_counters(device);
    uint64_t in_flight_ns = flight->in_flight_ns > 0 ? (uint64_t)flight->in_flight_ns : 0;
    if (is_settled || counters->in_flight_ns == 0)
        __atomic_store_n(&counters->in_flight_since_ns, (uint64_t)now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&counters->in_flight_ns, in_flight_ns, __ATOMIC_RELAXED);
}

/* Takes a batch out of the books of what is in flight, with what is now known of it. */
static void settle(struct flight *flight, uint32_t device, const struct batch *batch,
                   bool is_measured, int64_t gpu_ns, int64_t now_ns)
{
    flight->in_flight_ns -= batch->charged_ns;
    int64_t truth_ns = is_measured ? gpu_ns : batch->charged_ns;
    region_add(&region_counters(device)->gpu_time_ns, truth_ns);
    show_in_flight(flight, device, true, now_ns);
    utilisation_note(region_usage(), region_shared(device), device, (uint64_t)now_ns);
    if (!is_measured)
        return;
    share_charge(region_shared(device), now_ns, truth_ns - batch->charged_ns,
                 throttle_percent(device));
    learn(flight, batch, gpu_ns);
    flight->is_blind = false;
}

void flight_harvest(struct flight *flight, uint32_t device, int64_t now_ns)
{
    struct batch batch;
    int64_t gpu_ns;
    int outcome;
    while ((outcome = timing_harvest(&flight->timing, &batch, &gpu_ns)) != 0)
        settle(flight, device, &batch, outcome > 0, gpu_ns, now_ns);
}

/* Puts `launches` of a kind into the open batch, or takes them out again (negative). */
static void charge(struct flight *flight, uint32_t device, uint64_t key, int64_t price_ns,
                   int64_t launches, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    int64_t gpu_ns = launches * price_ns;
    share_charge(region_shared(device), now_ns, gpu_ns, throttle_percent(device));
    region_add(&region_counters(device)->launches, launches);
    if (open == NULL) {
        region_add(&region_counters(device)->gpu_time_ns, gpu_ns); /* not timed: as estimated */
        return;
    }
    timing_count(open, key, launches);
    open->charged_ns += gpu_ns;
    flight->in_flight_ns += gpu_ns;
    show_in_flight(flight, device, false, now_ns);
}

void flight_revoke(struct flight *flight, uint32_t device, int64_t now_ns)
{
    if (lease.granted == 0 || lease.device != device)
        return;
    int64_t left = __atomic_exchange_n(&lease.left, 0, __ATOMIC_ACQ_REL);
    lease.granted = 0;
    struct batch *open = timing_open_batch(&flight->timing);
    if (left > 0 && open != NULL)
        charge(flight, device, flight->leased_key, flight->leased_price_ns, -left, now_ns);
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void flight_grant(struct flight *flight, uint32_t device, const struct estimate *estimate,
                  const void *object, uint64_t blocks, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    if (estimate->samples < ESTIMATE_FIRST_BATCHES || turns_is_busy(&flight->turns) ||
        open->thread != 0 || capture_is_any())
        return; /* a per-thread stream is another one in each thread, and a lease fits them all */
    int64_t price = price_of(estimate);
    int64_t room =
        lesser(THROTTLE_BATCH_NS - open->charged_ns, THROTTLE_IN_FLIGHT_NS - flight->in_flight_ns);
    int64_t slack_ns = share_room_ns(region_shared(device), now_ns);
    int64_t launches =
        lesser(room / price, slack_ns / (share_cost_ns(price, throttle_percent(device)) + 1));
    if (launches <= 0 || (lease.granted != 0 && lease.device != device))
        return;
    charge(flight, device, estimate->key, price, launches, now_ns);
    flight->leased_key = estimate->key;
    flight->leased_price_ns = price;
    lease.object = object;
    lease.blocks = blocks;
    lease.stream = open->stream;
    lease.device = device;
    lease.granted = launches;
    __atomic_store_n(&lease.left, launches, __ATOMIC_RELEASE);
}

/* True when a batch has taken longer to launch than to run: the GPU idled in between, and that is
 * nobody's GPU time. Not asked of a batch that its own launch is about to close. */
static bool has_idled(const struct batch *open, int64_t now_ns)
{
    return !open->ends_behind && now_ns > open->opened_ns + open->charged_ns + STALE_AFTER_NS;
}

/* Leaves an open batch unmeasured; its estimates stand. */
static void give_up_open(struct flight *flight, uint32_t device, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return;
    struct batch batch = *open;
    timing_drop_open(&flight->timing);
    settle(flight, device, &batch, false, 0, now_ns);
    flight->measure_next = true;
}

void flight_close(struct flight *flight, uint32_t device, int64_t now_ns)
{
    flight_revoke(flight, device, now_ns);
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return;
    if (has_idled(open, now_ns)) {
        give_up_open(flight, device, now_ns);
        return;
    }
    struct batch batch = *open;
    if (!timing_close(&flight->timing, now_ns)) {
        settle(flight, device, &batch, false, 0, now_ns);
        flight->measure_next = true;
    }
}

void flight_drop_stale(struct flight *flight, uint32_t device, int64_t now_ns)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    if (open != NULL && has_idled(open, now_ns))
        give_up_open(flight, device, now_ns);
}

bool flight_enlist(struct flight *flight, uint32_t device, struct estimate *estimate,
                   CUstream stream, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    if (open != NULL && (open->stream != stream || open->thread != timing_thread_of(stream) ||
                         estimate->samples == 0)) /* a new kind is measured by itself */
        flight_close(flight, device, now_ns);
    if (timing_open_batch(&flight->timing) == NULL)
        timing_open(&flight->timing, stream, now_ns);
    charge(flight, device, estimate->key, price_of(estimate), 1, now_ns);
    open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return false; /* the driver cannot time it: its estimate stands */
    open->ends_behind = flight->measure_next || open->charged_ns >= THROTTLE_BATCH_NS ||
                        open->launches >= estimate_batch_limit(estimate);
    flight->measure_next = false;
    return open->ends_behind;
}

void flight_close_behind(struct flight *flight, uint32_t device, int64_t now_ns)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    /* The driver can take milliseconds for a first launch (it loads the code), with our start event
     * already on the idle GPU. Twice at most: a launch that is always slow must be learned, too. */
    if (open != NULL && open->launches == 1 && now_ns > open->opened_ns + STALE_AFTER_NS) {
        struct estimate *estimate = estimate_find(&flight->estimates, open->kinds[0].key);
        if (estimate->given_up < MOST_GIVEN_UP) {
            estimate->given_up++;
            give_up_open(flight, device, now_ns);
            return;
        }
        estimate->given_up = 0;
    }
    flight_close(flight, device, now_ns);
}

void flight_forget(struct flight *flight, uint32_t device, CUcontext context, int64_t now_ns)
{
    struct batch batch;
    flight_revoke(flight, device, now_ns);
    while (timing_take_of_context(&flight->timing, context, &batch))
        settle(flight, device, &batch, false, 0, now_ns);
    timing_forget_context(&flight->timing, context);
}
