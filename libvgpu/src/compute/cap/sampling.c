#include "compute/cap/sampling.h"

#include "compute/cap/cap.h"
#include "compute/cap/virtual_time.h"
#include "slice/region.h"

#define NEAR_LIMIT_NS 2000000 /* that the virtual time may still move: less is near */
#define BACKLOG_NS 1000000    /* charged by price and still to run: more is to be measured */
#define DOUBT_NS 50000000     /* after a sample that was far off */

/* True where a wrong price would soon hold the program, or not hold it. */
static bool is_near_limit(const struct flight *flight, int64_t now_ns)
{
    int64_t near_ns = NEAR_LIMIT_NS + (flight_overlaps(flight) ? 2 * FLIGHT_OVERLAPPING_NS : 0);
    return cap_is_kept(flight->device, &flight->window) &&
           virtual_time_left_ns(region_shared(flight->device), now_ns) < near_ns;
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
static bool are_all_measured(struct flight *flight, const struct estimate *estimate, int64_t now_ns)
{
    bool is_near = is_near_limit(flight, now_ns);
    bool is_long = cap_is_kept(flight->device, &flight->window) &&
                   estimate_price(estimate) >= ESTIMATE_LONG_NS;
    return is_long || is_kept_busy(flight, now_ns) || (is_near && !flight->has_pauses) ||
           estimate_is_uneven(estimate, is_near ? ESTIMATE_UNEVEN_NS : ESTIMATE_LONG_NS);
}

enum sampling sampling_choose(struct flight *flight, const struct estimate *estimate,
                              int64_t now_ns)
{
    if (estimate->samples < ESTIMATE_KNOWN || !flight_has_no_turns(flight))
        return SAMPLING_ALL;
    bool is_due = ration_is_due(&flight->ration, estimate_price(estimate), now_ns);
    bool is_idle = ration_backlog_ns(&flight->ration, now_ns) == 0;
    if (stream_habits_are_short(&flight->streams) && may_trust_prices(flight, now_ns))
        return is_due && is_idle ? SAMPLING_ONE : SAMPLING_NONE;
    /* Only a launch that would not have been measured otherwise is a sample: it stands for such. */
    if (flight->window.state != WINDOW_SHARED && are_all_measured(flight, estimate, now_ns))
        return SAMPLING_ALL;
    if (is_due)
        return SAMPLING_ONE;
    return is_kept_busy(flight, now_ns) ? SAMPLING_ALL : SAMPLING_NONE;
}

void sampling_take(struct flight *flight, struct batch *open, const struct estimate *estimate,
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
}
