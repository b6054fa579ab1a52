#include "compute/flight.h"

#include <string.h>

#include "compute/arrival.h"
#include "compute/cap.h"
#include "compute/capture.h"
#include "compute/prepaid.h"
#include "compute/sample_quality.h"
#include "compute/utilisation.h"
#include "compute/virtual_time.h"
#include "slice/region.h"
#include "slice/usage_file.h"

#define MOST_GIVEN_UP 2
#define SLOW_LAUNCH_NS 200000 /* on an idle GPU, where what it took can be told */

struct prepaid prepaid;

static __thread char own; /* its address is this thread's name in a batch */

void flight_reset_prepaid(void)
{
    memset(&prepaid, 0, sizeof prepaid);
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

/* Nothing of any process of this container is in flight. */
static bool is_drained(uint32_t device)
{
    const struct vgpu_usage_header *header = region_usage();
    uint32_t used = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    for (uint32_t slot = 0; slot < used && slot < VGPU_SLOT_COUNT; slot++)
        if (usage_slot_device(region_usage(), slot, device)->in_flight_ns != 0)
            return false;
    return true;
}

/* Takes a batch out of what is in flight, with what is now known of it. */
static void settle(struct flight *flight, uint32_t device, const struct batch *batch,
                   bool is_measured, int64_t gpu_ns, int64_t now_ns)
{
    flight->in_flight_ns -= batch->charged_ns;
    if (is_measured) { /* something comes back from the GPU */
        flight->settled_ns = now_ns;
        flight->patience_ns = 0;
        flight->is_blind = false;
    }
    /* With others it only tells that it took no longer: there the idle time must not be taken
     * off, which is itself no more than a bound. */
    if (sample_quality_is_clean(&flight->window, batch))
        gpu_ns -= batch->idle_ns;
    is_measured =
        is_measured && sample_quality_teaches(&flight->estimates, &flight->window, batch, gpu_ns);
    int64_t truth_ns = is_measured ? gpu_ns : batch->charged_ns;
    region_add(&region_counters(device)->gpu_time_ns, truth_ns);
    show_in_flight(flight, device, true, now_ns);
    utilisation_note(region_usage(), region_shared(device), device, (uint64_t)now_ns);
    if (batch->overdue_ns > 0)
        virtual_time_advance(region_shared(device), -batch->overdue_ns, cap_percent(device));
    if (is_measured) {
        virtual_time_correct(region_shared(device), now_ns, truth_ns - batch->charged_ns,
                             cap_percent(device));
        sample_quality_learn(&flight->estimates, &flight->window, batch, gpu_ns);
    }
    if (flight->timing.count == 0 && is_drained(device))
        virtual_time_drained(region_shared(device), now_ns);
}

void flight_harvest(struct flight *flight, uint32_t device, int64_t now_ns)
{
    struct batch batch;
    int64_t gpu_ns = 0;
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
    virtual_time_charge(region_shared(device), now_ns, gpu_ns, cap_percent(device));
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

void flight_charge_overdue(struct flight *flight, uint32_t device, int64_t now_ns)
{
    struct batch *oldest = timing_oldest(&flight->timing);
    if (oldest == NULL || !cap_is_kept(device, &flight->window))
        return;
    /* It cannot have begun before the one ahead of it was through. */
    int64_t end_ns = flight->settled_ns + oldest->charged_ns;
    end_ns = end_ns > oldest->predicted_end_ns ? end_ns : oldest->predicted_end_ns;
    int64_t late_ns = now_ns - end_ns - oldest->overdue_ns;
    if (late_ns <= 0)
        return;
    oldest->overdue_ns += late_ns;
    virtual_time_advance(region_shared(device), late_ns, cap_percent(device));
}

void flight_revoke(struct flight *flight, uint32_t device, int64_t now_ns)
{
    if (prepaid.granted == 0 || prepaid.device != device)
        return;
    int64_t left = __atomic_exchange_n(&prepaid.left, 0, __ATOMIC_ACQ_REL);
    prepaid.granted = 0;
    struct batch *open = timing_open_batch(&flight->timing);
    if (left > 0 && open != NULL)
        charge(flight, device, flight->prepaid_key, flight->prepaid_price_ns, -left, now_ns);
}

/* What is prepaid would be launched whether the window is still open or not. */
static bool has_no_turns(const struct window *window)
{
    return window->state == WINDOW_NONE || window->state == WINDOW_FREE;
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
        arrival_is_behind(region_usage(), device, region_slot(), now_ns, now_ns) ||
        open->thread != 0 || capture_is_any() || !has_no_turns(&flight->window))
        return; /* a per-thread stream is another one in each thread, and what is prepaid fits them all */
    int64_t price = estimate_price(estimate);
    int64_t room =
        lesser(FLIGHT_BATCH_NS - open->charged_ns, FLIGHT_MOST_NS - flight->in_flight_ns);
    int64_t slack_ns = virtual_time_room_ns(region_shared(device), now_ns);
    int64_t launches = room / price;
    if (cap_is_kept(device, &flight->window))
        launches =
            lesser(launches, slack_ns / (virtual_time_cost_ns(price, cap_percent(device)) + 1));
    if (launches <= 0 || (prepaid.granted != 0 && prepaid.device != device))
        return;
    charge(flight, device, estimate->key, price, launches, now_ns);
    flight->prepaid_key = estimate->key;
    flight->prepaid_price_ns = price;
    prepaid.object = object;
    prepaid.blocks = blocks;
    prepaid.stream = open->stream;
    prepaid.device = device;
    prepaid.granted = launches;
    __atomic_store_n(&prepaid.left, launches, __ATOMIC_RELEASE);
}

/* True when a batch has taken longer to launch than to run: the GPU idled in between, and that is
 * no one's GPU time. Not asked of a batch that its own launch is about to close. */
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

/* Ends the open batch where it stands. */
static void close_measured(struct flight *flight, uint32_t device, int64_t now_ns)
{
    struct batch batch = *timing_open_batch(&flight->timing);
    if (!timing_close(&flight->timing, now_ns)) {
        settle(flight, device, &batch, false, 0, now_ns);
        flight->measure_next = true;
    }
}

void flight_close(struct flight *flight, uint32_t device, int64_t now_ns)
{
    flight_revoke(flight, device, now_ns);
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return;
    if (has_idled(open, now_ns) || open->ends_behind || open->recorded_ns != 0) {
        give_up_open(flight, device, now_ns); /* a launch of another thread is still on its way */
        return;
    }
    close_measured(flight, device, now_ns);
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
    bool is_first = false;
    if (open != NULL && (open->stream != stream || open->thread != timing_thread_of(stream) ||
                         estimate->samples == 0)) /* a new kind is measured by itself */
        flight_close(flight, device, now_ns);
    open = timing_open_batch(&flight->timing);
    if (open != NULL)
        open->recorded_ns = 0; /* this launch may come before the first one */
    if (open == NULL && timing_open(&flight->timing, stream, now_ns)) {
        open = timing_open_batch(&flight->timing);
        open->window = flight->window.state == WINDOW_OPEN ? flight->window.id : 0;
        open->grant = flight->window.number;
        open->window_end_ns = flight->window.end_ns;
        open->is_clean = has_no_turns(&flight->window) || open->window != 0;
        open->opener = &own;
        is_first = open->recorded_ns != 0;
    }
    if (flight->window.state == WINDOW_OPEN && flight->used_window != flight->window.id) {
        flight->used_window = flight->window.id;
        region_add(&region_counters(device)->windows, 1);
        window_use(device, &flight->window);
    }
    charge(flight, device, estimate->key, estimate_price(estimate), 1, now_ns);
    open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return false; /* the driver cannot time it: its estimate stands */
    open->ends_behind = flight->measure_next || open->charged_ns >= FLIGHT_BATCH_NS ||
                        open->launches >= estimate_batch_limit(estimate);
    open->ender = &own;
    flight->measure_next = false;
    return open->ends_behind || is_first;
}

bool flight_launched(struct flight *flight, uint32_t device, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return false;
    bool is_first = open->recorded_ns != 0 && open->opener == &own;
    int64_t slow_ns =
        is_first ? open->recorded_ns + SLOW_LAUNCH_NS : open->opened_ns + STALE_AFTER_NS;
    if (is_first)
        timing_began(&flight->timing, now_ns);
    if (!open->ends_behind || open->ender != &own)
        return is_first;
    /* The driver can take milliseconds for a first launch (it loads the code), with our start event
     * already on the idle GPU. Twice at most: a launch that is always slow must be learned, too. */
    if (open->launches == 1 && now_ns > slow_ns) {
        struct estimate *estimate = estimate_find(&flight->estimates, open->kinds[0].key);
        if (estimate->given_up < MOST_GIVEN_UP) {
            estimate->given_up++;
            give_up_open(flight, device, now_ns);
            return false;
        }
        estimate->given_up = 0;
    }
    flight_revoke(flight, device, now_ns);
    close_measured(flight, device, now_ns);
    return false;
}

void flight_forget(struct flight *flight, uint32_t device, CUcontext context, int64_t now_ns)
{
    struct batch batch;
    flight_revoke(flight, device, now_ns);
    while (timing_take_of_context(&flight->timing, context, &batch))
        settle(flight, device, &batch, false, 0, now_ns);
    timing_forget_context(&flight->timing, context);
}
