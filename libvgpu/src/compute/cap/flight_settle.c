#include "compute/cap/flight.h"

#include "compute/cap/budget.h"
#include "compute/cap/cap.h"
#include "compute/cap/virtual_time.h"
#include "compute/measure/sample_quality.h"
#include "compute/measure/utilisation.h"
#include "slice/region.h"
#include "slice/usage_file.h"

#define MOST_COMING_NS 20000000 /* a batch whose launches do not arrive for so long is given up */

void flight_show(const struct flight *flight, bool is_settled, int64_t now_ns)
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

/* Beyond what a batch was charged, to the virtual time alone. */
static void charge_late(struct flight *flight, const struct batch *batch, int64_t late_ns)
{
    virtual_time_advance(region_shared(flight->device), late_ns, cap_percent(flight->device));
    if (batch->parts_ns > 0)
        collective_debt_correct(&flight->collectives, cap_percent(flight->device), late_ns);
}

void flight_settle(struct flight *flight, const struct batch *batch, bool is_measured,
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
    if (is_measured && is_clean)
        gpu_ns = sample_quality_bound(&flight->estimates, batch, gpu_ns);
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
    flight_show(flight, true, now_ns);
    utilisation_note(region_usage(), region_shared(flight->device), flight->device,
                     (uint64_t)now_ns);
    if (batch->overdue_ns > 0)
        charge_late(flight, batch, -batch->overdue_ns);
    if (is_measured) {
        virtual_time_correct(region_shared(flight->device), now_ns, truth_ns - batch->charged_ns,
                             cap_percent(flight->device));
        if (batch->parts_ns > 0)
            collective_debt_correct(&flight->collectives, cap_percent(flight->device),
                                    truth_ns - batch->charged_ns);
        sample_quality_learn(&flight->estimates, &flight->overlap, &flight->window, batch, gpu_ns);
    }
    if (flight->timing.count == 0 && is_drained(flight->device))
        virtual_time_drained(region_shared(flight->device), now_ns);
}

bool flight_has_idled(struct flight *flight, int64_t now_ns)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return false;
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

void flight_give_up(struct flight *flight, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    if (open == NULL)
        return;
    struct batch batch = *open;
    timing_drop_open(&flight->timing);
    flight_settle(flight, &batch, false, 0, now_ns);
    flight->measure_next = flight->gave_up = true;
}

/* What was in flight still ran at the last look: what is left ends later than foreseen if that was late,
 * since the change to this process takes time. Turns that did not follow would overlap more and more. */
static void note_lateness(struct flight *flight)
{
    if (!window_has_turns(&flight->window) || flight_overlaps(flight) || flight->in_flight_ns <= 0)
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
        flight_settle(flight, &batch, outcome > 0, gpu_ns, now_ns);
        if (outcome <= 0)
            continue;
        note_lateness(flight);
        int64_t since_ns = interlock_return(&flight->interlock, now_ns);
        if (since_ns >= 0)
            sample_quality_learn_awaited(&flight->estimates, &flight->overlap, &batch, since_ns);
    }
    const struct batch *oldest = timing_oldest(&flight->timing);
    if (oldest == NULL)
        return;
    flight->seen_running_ns = now_ns;
    if (oldest->parts_ns > 0) /* a wait that is not known yet must not let the next round go */
        flight_charge_overdue(flight, now_ns);
}

void flight_catch_up(struct flight *flight, int64_t now_ns)
{
    budget_collect(flight, now_ns);
    if (flight_has_idled(flight, now_ns))
        flight_give_up(flight, now_ns);
    const struct batch *oldest = timing_oldest(&flight->timing);
    if (oldest != NULL && now_ns >= oldest->predicted_end_ns)
        flight_harvest(flight, now_ns);
}

int64_t flight_late_ns(struct flight *flight, int64_t now_ns)
{
    const struct batch *oldest = timing_oldest(&flight->timing);
    if (oldest == NULL)
        return 0;
    /* It cannot have begun before the one ahead of it was through. */
    int64_t end_ns = flight->settled_ns + oldest->charged_ns;
    return now_ns - (end_ns > oldest->predicted_end_ns ? end_ns : oldest->predicted_end_ns);
}

void flight_charge_overdue(struct flight *flight, int64_t now_ns)
{
    struct batch *oldest = timing_oldest(&flight->timing);
    if (oldest == NULL || !cap_is_kept(flight->device, &flight->window))
        return;
    int64_t late_ns = flight_late_ns(flight, now_ns) - oldest->overdue_ns;
    if (late_ns <= 0)
        return;
    oldest->overdue_ns += late_ns;
    charge_late(flight, oldest, late_ns);
}

void flight_forget(struct flight *flight, CUcontext context, int64_t now_ns)
{
    struct batch batch;
    budget_collect(flight, now_ns);
    while (timing_take_of_context(&flight->timing, context, &batch))
        flight_settle(flight, &batch, false, 0, now_ns);
    timing_forget_context(&flight->timing, context);
}
