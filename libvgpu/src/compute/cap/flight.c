#include "compute/cap/flight.h"

#include "compute/cap/budget.h"
#include "compute/cap/cap.h"
#include "compute/cap/virtual_time.h"
#include "compute/measure/utilisation.h"
#include "slice/region.h"

#define MOST_GIVEN_UP 2
#define SLOW_LAUNCH_NS 200000 /* on an idle GPU, where what it took can be told */
/* A sample is one launch of many: one that the host was slow with is not worth keeping. */
#define SLOW_SAMPLE_NS 50000
#define PAUSE_NS 5000 /* by which a launch is late: not yet what one host call more or less is */
#define NEAR_LIMIT_NS 2000000 /* that the virtual time may still move: less is near */
#define BACKLOG_NS 1000000    /* charged by price and still to run: more is to be measured */
#define DOUBT_NS 50000000     /* after a sample that was far off */

bool flight_overlaps(const struct flight *flight)
{
    return stream_habits_overlap(&flight->streams) && !stream_habits_are_short(&flight->streams);
}

int64_t flight_left_ns(const struct flight *flight, int64_t now_ns)
{
    return virtual_time_left_ns(region_shared(flight->device), now_ns) +
           flight->collectives.put_off_ns;
}

/* ---- which launches are measured ---- */

enum sampling {
    SAMPLING_NONE, /* its price is good enough */
    SAMPLING_ONE,  /* that launch stands for others that are charged by price (ration.h) */
    SAMPLING_ALL,  /* it is measured, and so are those that follow */
};

/* True where a wrong price would soon hold the program, or not hold it. */
static bool is_near_limit(const struct flight *flight, int64_t now_ns)
{
    int64_t near_ns = NEAR_LIMIT_NS + (flight_overlaps(flight) ? 2 * FLIGHT_OVERLAPPING_NS : 0);
    return cap_is_kept(flight->device, &flight->window) && flight_left_ns(flight, now_ns) < near_ns;
}

/* True while the GPU has more to do than is good to guess: a batch of several launches, without a pause,
 * or much that was charged by price. */
static bool is_kept_busy(struct flight *flight, int64_t now_ns)
{
    const struct batch *last = timing_last_closed(&flight->timing);
    const struct batch *oldest = timing_oldest(&flight->timing);
    if (ration_backlog_ns(&flight->ration, now_ns) > BACKLOG_NS)
        return true;
    return last != NULL && ((!last->is_sample && last->predicted_end_ns > now_ns) ||
                            now_ns > oldest->predicted_end_ns + BACKLOG_NS);
}

/* True while prices hold as far as is seen: no sample was far off lately, and the GPU has no more to do
 * than they say. */
static bool may_trust_prices(struct flight *flight, int64_t now_ns)
{
    const struct batch *oldest = timing_oldest(&flight->timing);
    return now_ns >= flight->doubted_ns + DOUBT_NS &&
           ration_backlog_ns(&flight->ration, now_ns) <= BACKLOG_NS &&
           (oldest == NULL || now_ns <= oldest->predicted_end_ns + BACKLOG_NS);
}

/* True where launches are measured one and all while nobody else runs: near the limit, where a wrong price
 * holds who should go on. But where the GPU idles between launches, those that can be measured are not like
 * the rest, unless they are so long, or so uneven, that a sample says less. Under a cap long ones all are:
 * one that is charged by price may run next to a batch on another stream, and be counted with that, too. */
static bool are_all_measured(struct flight *flight, const struct launch *launch,
                             const struct estimate *estimate, int64_t now_ns)
{
    bool is_near = is_near_limit(flight, now_ns);
    bool is_long = cap_is_kept(flight->device, &flight->window) &&
                   estimate_price(estimate) >= ESTIMATE_LONG_NS;
    return is_long || is_kept_busy(flight, now_ns) ||
           (is_near && (launch->is_collective || !flight->has_pauses)) ||
           estimate_is_uneven(estimate, is_near ? ESTIMATE_UNEVEN_NS : ESTIMATE_LONG_NS);
}

/* What is to become of a launch for which no batch is open. */
static enum sampling choose_sampling(struct flight *flight, const struct launch *launch,
                                     const struct estimate *estimate, int64_t now_ns)
{
    if (estimate->samples < ESTIMATE_KNOWN || window_has_turns(&flight->window))
        return SAMPLING_ALL;
    bool is_due = ration_is_due(&flight->ration, estimate_price(estimate), now_ns);
    bool is_idle = ration_backlog_ns(&flight->ration, now_ns) == 0;
    if (stream_habits_are_short(&flight->streams) && may_trust_prices(flight, now_ns))
        return is_due && is_idle ? SAMPLING_ONE : SAMPLING_NONE;
    /* Only a launch that would not have been measured otherwise is a sample: it stands for such. */
    if (flight->window.state != WINDOW_SHARED && are_all_measured(flight, launch, estimate, now_ns))
        return SAMPLING_ALL;
    if (is_due)
        return SAMPLING_ONE;
    return is_kept_busy(flight, now_ns) ? SAMPLING_ALL : SAMPLING_NONE;
}

/* Notes what a sample stands for in the batch that it opens. */
static void take_sample(struct flight *flight, struct batch *open, const struct estimate *estimate,
                        int64_t now_ns)
{
    bool is_near = is_near_limit(flight, now_ns);
    bool is_idle = ration_backlog_ns(&flight->ration, now_ns) == 0;
    int64_t speaks_for_ns = ration_begin(&flight->ration, estimate_price(estimate),
                                         is_near ? RATION_NEAR_GPU_NS : RATION_GPU_NS, now_ns);
    open->is_sample = !flight_overlaps(flight) || is_idle;
    if (open->is_sample)
        open->speaks_for_ns = speaks_for_ns;
    else
        ration_leave(&flight->ration, speaks_for_ns);
    if (!open->is_sample || !open->is_behind || flight->is_sparse ||
        !stream_habits_are_chains(&flight->streams))
        return;
    open->is_bound = flight->bound_next;
    open->least_launches = open->is_bound ? 1 : FLIGHT_CHAIN_LAUNCHES;
    flight->bound_next = !flight->bound_next;
}

/* ---- batches and what is in them ---- */

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
        batch_count(open, kind->key, estimate_price(kind), launches);
    else
        open->launches += (uint32_t)launches;
    open->charged_ns += gpu_ns;
    flight->in_flight_ns += gpu_ns;
    flight_show(flight, false, now_ns);
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
        flight_give_up(flight, now_ns);
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
        flight_settle(flight, &batch, false, 0, now_ns);
        flight->measure_next = true;
    }
}

void flight_close(struct flight *flight, int64_t now_ns)
{
    budget_collect(flight, now_ns);
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return;
    if (flight_has_idled(flight, now_ns))
        flight_give_up(flight, now_ns);
    else if (open->coming > 0)
        open->ends_behind = true;
    else
        close_measured(flight, now_ns);
}

/* Ends the open batch here and now, measured if that can be. */
static void close_at_once(struct flight *flight, int64_t now_ns)
{
    flight_close(flight, now_ns);
    flight_give_up(flight, now_ns);
}

void flight_forget_stream(struct flight *flight, CUstream stream, int64_t now_ns)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    stream_habits_end(&flight->streams);
    if (open != NULL && batch_is_on(open, stream))
        close_at_once(flight, now_ns);
}

/* Begins a batch with the launch that comes. */
static void open_batch(struct flight *flight, CUstream stream, const struct estimate *estimate,
                       enum sampling sampling, int64_t now_ns)
{
    if (!timing_open(&flight->timing, stream, now_ns))
        return;
    struct batch *open = timing_open_batch(&flight->timing);
    if (sampling == SAMPLING_ONE)
        take_sample(flight, open, estimate, now_ns);
    open->window = flight->window.state == WINDOW_OPEN ? flight->window.id : 0;
    open->grant = flight->window.number;
    open->window_end_ns = flight->window.end_ns;
    /* On other streams may be what nobody measures, and its time would be in this. */
    bool is_mixed =
        stream_habits_overlap(&flight->streams) && ration_backlog_ns(&flight->ration, now_ns) > 0;
    open->is_clean = !is_mixed && flight->window.state != WINDOW_SHARED &&
                     (!window_has_turns(&flight->window) || open->window != 0);
}

void flight_enlist(struct flight *flight, struct launch *launch, struct estimate *estimate,
                   int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    stream_habits_launch(&flight->streams, launch->stream, launch->is_dependent);
    /* A new kind is measured by itself, and so is a part of a collective, in which others wait. */
    bool is_apart =
        open != NULL &&
        (estimate->samples == 0 || (launch->is_collective && !flight_overlaps(flight)) ||
         (!batch_is_on(open, launch->stream) && !timing_join(&flight->timing, launch->stream)));
    if (is_apart)
        close_at_once(flight, now_ns);
    else
        note_pace(flight, now_ns);
    open = timing_open_batch(&flight->timing);
    enum sampling sampling =
        open == NULL ? choose_sampling(flight, launch, estimate, now_ns) : SAMPLING_NONE;
    if (sampling != SAMPLING_NONE)
        open_batch(flight, launch->stream, estimate, sampling, now_ns);
    if (flight->window.state == WINDOW_OPEN && flight->used_window != flight->window.id) {
        flight->used_window = flight->window.id;
        region_add(&region_counters(flight->device)->windows, 1);
        window_use(flight->device, &flight->window);
    }
    int64_t price_ns = estimate_price(estimate);
    virtual_time_charge(region_shared(flight->device), begins_at(flight, now_ns), price_ns,
                        cap_percent(flight->device));
    if (launch->is_collective) {
        estimate_mark_part(estimate);
        collective_debt_part(&flight->collectives, cap_percent(flight->device), price_ns, now_ns);
    } else {
        collective_debt_end_round(&flight->collectives);
    }
    flight_count(flight, estimate, price_ns, 1, now_ns);
    open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return; /* its price stands */
    launch->batch = open->id;
    open->coming++;
    open->parts_ns += launch->is_collective ? price_ns : 0;
    /* One launch among others on other streams has their time in its own. */
    bool is_wanted = flight->measure_next && !flight_overlaps(flight);
    bool is_alone = open->launches == 1 && flight->has_pauses && !launch->is_dependent &&
                    estimate_is_uneven(estimate, ESTIMATE_UNEVEN_NS);
    bool is_full = open->charged_ns >= FLIGHT_BATCH_NS;
    bool is_enough = is_wanted || open->is_sample || flight->is_sparse || is_alone ||
                     launch->is_collective || open->launches >= estimate_batch_limit(estimate);
    open->ends_behind =
        open->ends_behind || is_full || (is_enough && open->launches >= open->least_launches);
    if (is_full)
        flight->has_pauses = false;
    flight->measure_next = false;
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
            flight_give_up(flight, now_ns);
            return false;
        }
        estimate->given_up = 0;
    }
    budget_collect(flight, now_ns);
    close_measured(flight, now_ns);
    return false;
}
