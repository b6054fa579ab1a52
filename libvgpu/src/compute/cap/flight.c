#include "compute/cap/flight.h"

#include "compute/cap/budget.h"
#include "compute/cap/cap.h"
#include "compute/cap/sampling.h"
#include "compute/cap/virtual_time.h"
#include "compute/measure/sample_quality.h"
#include "compute/measure/utilisation.h"
#include "slice/region.h"
#include "slice/usage_file.h"

#define MOST_GIVEN_UP 2
#define SLOW_LAUNCH_NS 200000 /* on an idle GPU, where what it took can be told */
/* A sample is one launch of many: one that the host was slow with is not worth keeping. */
#define SLOW_SAMPLE_NS 50000
#define MOST_COMING_NS 20000000 /* a batch whose launches do not arrive for so long is given up */
#define PAUSE_NS 5000 /* by which a launch is late: not yet what one host call more or less is */

/* Shows what is in flight to those who ask for the utilisation. Of what was in flight before, some
 * ran until now if `is_settled`. */
static void show_in_flight(const struct flight *flight, bool is_settled, int64_t now_ns)
{
    struct vgpu_usage_slot_device *counters = region_counters(flight->device);
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
static void settle(struct flight *flight, const struct batch *batch, bool is_measured,
                   int64_t gpu_ns, int64_t now_ns)
{
    flight->in_flight_ns -= batch->charged_ns;
    if (is_measured) { /* something comes back from the GPU */
        flight->settled_ns = now_ns;
        flight->patience_ns = 0;
        flight->is_blind = false;
        flight->gave_up = false;
    }
    /* With others several launches only tell that they took no longer: there the idle time must not
     * be taken off, which is itself no more than a bound. */
    bool is_clean = sample_quality_is_clean(&flight->window, batch);
    bool is_shared = flight->window.state == WINDOW_SHARED;
    if (is_clean || batch->launches == 1)
        gpu_ns -= batch->idle_ns;
    if (is_measured && batch->is_sample && sample_quality_is_wrong(batch, gpu_ns, is_shared)) {
        ration_hurry(&flight->ration);
        flight->doubted_ns = now_ns;
    }
    if (is_measured && !is_clean && is_shared)
        sample_quality_learn_shared(&flight->estimates, batch, gpu_ns);
    is_measured = is_measured && (is_clean || !batch->is_sample) &&
                  sample_quality_teaches(&flight->estimates, &flight->window, batch, gpu_ns);
    int64_t truth_ns = is_measured ? gpu_ns : batch->charged_ns;
    if (is_measured && batch->is_sample)
        truth_ns += ration_owed_ns(batch->speaks_for_ns, batch->charged_ns, gpu_ns);
    if (!is_measured && is_clean)
        ration_leave(&flight->ration, batch->charged_ns + batch->speaks_for_ns);
    region_add(&region_counters(flight->device)->gpu_time_ns, truth_ns);
    show_in_flight(flight, true, now_ns);
    utilisation_note(region_usage(), region_shared(flight->device), flight->device,
                     (uint64_t)now_ns);
    if (batch->overdue_ns > 0)
        virtual_time_advance(region_shared(flight->device), -batch->overdue_ns,
                             cap_percent(flight->device));
    if (is_measured) {
        virtual_time_correct(region_shared(flight->device), now_ns, truth_ns - batch->charged_ns,
                             cap_percent(flight->device));
        sample_quality_learn(&flight->estimates, &flight->overlap, &flight->window, batch, gpu_ns);
    }
    if (flight->timing.count == 0 && is_drained(flight->device))
        virtual_time_drained(region_shared(flight->device), now_ns);
}

/* What was in flight still ran at the last look: what is left ends later than foreseen if that was late,
 * since the change to this process takes time. Turns that did not follow would overlap more and more. */
static void note_lateness(struct flight *flight)
{
    if (flight_has_no_turns(flight) || flight_overlaps(flight) || flight->in_flight_ns <= 0)
        return;
    timing_delay(&flight->timing, flight->seen_running_ns);
    virtual_time_lasts(region_shared(flight->device),
                       flight->seen_running_ns + flight->in_flight_ns);
}

void flight_harvest(struct flight *flight, int64_t now_ns)
{
    struct batch batch;
    int64_t gpu_ns = 0;
    int outcome;
    while ((outcome = timing_harvest(&flight->timing, &batch, &gpu_ns)) != 0) {
        settle(flight, &batch, outcome > 0, gpu_ns, now_ns);
        if (outcome <= 0)
            continue;
        note_lateness(flight);
        int64_t since_ns = interlock_return(&flight->interlock, now_ns);
        if (since_ns >= 0)
            sample_quality_learn_awaited(&flight->estimates, &flight->overlap, &batch, since_ns);
    }
    if (timing_oldest(&flight->timing) != NULL)
        flight->seen_running_ns = now_ns;
}

void flight_count(struct flight *flight, const struct estimate *kind, int64_t gpu_ns,
                  int64_t launches, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    region_add(&region_counters(flight->device)->launches, launches);
    if (open == NULL) {
        /* not timed: as estimated */
        region_add(&region_counters(flight->device)->gpu_time_ns, gpu_ns);
        utilisation_note(region_usage(), region_shared(flight->device), flight->device,
                         (uint64_t)now_ns);
        ration_charge(&flight->ration, gpu_ns, now_ns);
        return;
    }
    if (kind != NULL)
        timing_count(open, kind->key, estimate_price(kind), launches);
    else
        open->launches += (uint32_t)launches;
    open->charged_ns += gpu_ns;
    flight->in_flight_ns += gpu_ns;
    show_in_flight(flight, false, now_ns);
}

void flight_charge_overdue(struct flight *flight, int64_t now_ns)
{
    struct batch *oldest = timing_oldest(&flight->timing);
    if (oldest == NULL || !cap_is_kept(flight->device, &flight->window))
        return;
    /* It cannot have begun before the one ahead of it was through. */
    int64_t end_ns = flight->settled_ns + oldest->charged_ns;
    end_ns = end_ns > oldest->predicted_end_ns ? end_ns : oldest->predicted_end_ns;
    int64_t late_ns = now_ns - end_ns - oldest->overdue_ns;
    if (late_ns <= 0)
        return;
    oldest->overdue_ns += late_ns;
    virtual_time_advance(region_shared(flight->device), late_ns, cap_percent(flight->device));
}

bool flight_has_no_turns(const struct flight *flight)
{
    return flight->window.state == WINDOW_NONE || flight->window.state == WINDOW_FREE ||
           flight->window.state == WINDOW_SHARED;
}

/* True when a batch has taken longer to launch than to run, since the GPU was last seen with what came
 * before it: the GPU idled in between, and that is no one's GPU time. Next to other streams' work a price
 * that is too low looks the same, and would stay. So there one batch in a row is given up at most. */
static bool has_idled(const struct flight *flight, const struct batch *open, int64_t now_ns)
{
    if (open->is_cut)
        return true;
    if (open->stream_count > 1 && flight->gave_up)
        return false;
    int64_t most_ns = open->ends_behind ? MOST_COMING_NS : STALE_AFTER_NS;
    int64_t begun_ns = open->opened_ns;
    if (begun_ns < flight->seen_running_ns)
        begun_ns = flight->seen_running_ns;
    return now_ns > begun_ns + open->charged_ns + most_ns;
}

/* Leaves an open batch unmeasured; its estimates stand. */
static void give_up_open(struct flight *flight, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return;
    struct batch batch = *open;
    timing_drop_open(&flight->timing);
    settle(flight, &batch, false, 0, now_ns);
    flight->measure_next = flight->gave_up = true;
}

/* Notes whether the GPU idles between launches, which come one by one then: a batch of them would
 * have its pauses in it, so each is measured by itself. Not told where streams overlap. */
static void note_pace(struct flight *flight, int64_t now_ns)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    const struct batch *last = timing_last_closed(&flight->timing);
    if (open == NULL) {
        if (last != NULL && last->predicted_end_ns > now_ns)
            flight->is_sparse = false;
    } else if (!flight_overlaps(flight) && open->coming == 0 &&
               now_ns > open->opened_ns + open->charged_ns + PAUSE_NS) {
        flight->is_sparse = true;
        flight->has_pauses = true;
        give_up_open(flight, now_ns);
    }
}

/* When the GPU comes to what is launched now: a window's first launches set out before it begins. */
static int64_t begins_at(const struct flight *flight, int64_t now_ns)
{
    bool is_early = flight->window.state == WINDOW_OPEN && flight->window.start_ns > now_ns;
    return is_early ? flight->window.start_ns : now_ns;
}

/* Ends the open batch where it stands. */
static void close_measured(struct flight *flight, int64_t now_ns)
{
    struct batch batch = *timing_open_batch(&flight->timing);
    if (!timing_close(&flight->timing, begins_at(flight, now_ns))) {
        settle(flight, &batch, false, 0, now_ns);
        flight->measure_next = true;
    }
}

void flight_close(struct flight *flight, int64_t now_ns)
{
    budget_collect(flight, now_ns);
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return;
    if (has_idled(flight, open, now_ns))
        give_up_open(flight, now_ns);
    else if (open->coming > 0)
        open->ends_behind = true;
    else
        close_measured(flight, now_ns);
}

/* Ends the open batch here and now, measured if that can be. */
static void close_at_once(struct flight *flight, int64_t now_ns)
{
    flight_close(flight, now_ns);
    give_up_open(flight, now_ns);
}

bool flight_is_in_the_way(struct flight *flight, const struct estimate *estimate, CUstream stream,
                          int64_t now_ns)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    return open != NULL && open->coming > 0 &&
           (estimate->samples == 0 ||
            (!timing_is_on(open, stream) && !timing_can_join(open, stream)));
}

void flight_forget_stream(struct flight *flight, CUstream stream, int64_t now_ns)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    stream_habits_end(&flight->streams);
    if (open != NULL && timing_is_on(open, stream))
        close_at_once(flight, now_ns);
}

void flight_drop_stale(struct flight *flight, int64_t now_ns)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    if (open != NULL && has_idled(flight, open, now_ns))
        give_up_open(flight, now_ns);
}

bool flight_overlaps(const struct flight *flight)
{
    return stream_habits_overlap(&flight->streams) && !stream_habits_are_short(&flight->streams);
}

/* Begins a batch with the launch that comes. */
static void open_batch(struct flight *flight, CUstream stream, const struct estimate *estimate,
                       enum sampling sampling, int64_t now_ns)
{
    if (!timing_open(&flight->timing, stream, now_ns))
        return;
    struct batch *open = timing_open_batch(&flight->timing);
    open->is_sample = false;
    open->speaks_for_ns = 0;
    if (sampling == SAMPLING_ONE)
        sampling_take(flight, open, estimate, now_ns);
    open->window = flight->window.state == WINDOW_OPEN ? flight->window.id : 0;
    open->grant = flight->window.number;
    open->window_end_ns = flight->window.end_ns;
    /* On other streams may be what nobody measures, and its time would be in this. */
    bool is_mixed =
        stream_habits_overlap(&flight->streams) && ration_backlog_ns(&flight->ration, now_ns) > 0;
    open->is_clean = !is_mixed && flight->window.state != WINDOW_SHARED &&
                     (flight_has_no_turns(flight) || open->window != 0);
}

bool flight_enlist(struct flight *flight, struct launch *launch, struct estimate *estimate,
                   CUstream stream, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    stream_habits_launch(&flight->streams, stream);
    bool is_apart =
        open != NULL && (estimate->samples == 0 /* a new kind is measured by itself */
                         || (!timing_is_on(open, stream) && !timing_join(&flight->timing, stream)));
    if (is_apart)
        close_at_once(flight, now_ns);
    else
        note_pace(flight, now_ns);
    open = timing_open_batch(&flight->timing);
    enum sampling sampling =
        open == NULL ? sampling_choose(flight, estimate, now_ns) : SAMPLING_NONE;
    if (sampling != SAMPLING_NONE)
        open_batch(flight, stream, estimate, sampling, now_ns);
    if (flight->window.state == WINDOW_OPEN && flight->used_window != flight->window.id) {
        flight->used_window = flight->window.id;
        region_add(&region_counters(flight->device)->windows, 1);
        window_use(flight->device, &flight->window);
    }
    int64_t price_ns = estimate_price(estimate);
    virtual_time_charge(region_shared(flight->device), begins_at(flight, now_ns), price_ns,
                        cap_percent(flight->device));
    flight_count(flight, estimate, price_ns, 1, now_ns);
    open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return false; /* its price stands */
    launch->batch = open->id;
    open->coming++;
    /* One launch among others on other streams has their time in its own. */
    bool is_wanted = flight->measure_next && !flight_overlaps(flight);
    bool is_alone = open->launches == 1 && flight->has_pauses &&
                    estimate_is_uneven(estimate, ESTIMATE_UNEVEN_NS);
    open->ends_behind = open->ends_behind || is_wanted || open->is_sample || flight->is_sparse ||
                        is_alone || open->charged_ns >= FLIGHT_BATCH_NS ||
                        open->launches >= estimate_batch_limit(estimate);
    if (open->charged_ns >= FLIGHT_BATCH_NS)
        flight->has_pauses = false;
    flight->measure_next = false;
    return true;
}

bool flight_launched(struct flight *flight, const struct launch *launch, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL || open->id != launch->batch)
        return false; /* it was given up */
    open->coming--;
    bool is_first = open->recorded_ns != 0;
    int64_t slow_ns = open->is_sample ? open->opened_ns + SLOW_SAMPLE_NS
                      : is_first      ? open->recorded_ns + SLOW_LAUNCH_NS
                                      : open->opened_ns + STALE_AFTER_NS;
    if (open->launched_ns == 0)
        open->launched_ns = now_ns;
    if (is_first)
        timing_began(&flight->timing, now_ns);
    if (!open->ends_behind)
        return true;
    if (open->coming > 0)
        return false;
    /* The driver can take milliseconds for a first launch (it loads the code), with our start event
     * already on the idle GPU. Twice at most: a launch that is always slow must be learned, too. */
    bool is_slow = now_ns > slow_ns || (open->is_sample && timing_was_slow(&flight->timing, open));
    if (open->launches == 1 && is_slow) {
        struct estimate *estimate = estimate_find(&flight->estimates, open->kinds[0].key);
        if (estimate->given_up < MOST_GIVEN_UP) {
            estimate->given_up++;
            give_up_open(flight, now_ns);
            return false;
        }
        estimate->given_up = 0;
    }
    budget_collect(flight, now_ns);
    close_measured(flight, now_ns);
    return false;
}

void flight_forget(struct flight *flight, CUcontext context, int64_t now_ns)
{
    struct batch batch;
    budget_collect(flight, now_ns);
    while (timing_take_of_context(&flight->timing, context, &batch))
        settle(flight, &batch, false, 0, now_ns);
    timing_forget_context(&flight->timing, context);
}
