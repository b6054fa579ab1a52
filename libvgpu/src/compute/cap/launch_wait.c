#include "compute/cap/launch_wait.h"

#include "compute/cap/cap.h"
#include "compute/cap/collective_debt.h"
#include "compute/cap/launch_queue.h"
#include "compute/cap/virtual_time.h"
#include "slice/region.h"

#define MOST_WAITING_NS \
    20000000 /* then the limit is read again: a raised one must not be slept over */
/* While others use the GPU, too: what waits there in a row is what they wait for, and each row is a
 * change to this process and one back. */
#define SHARED_SLACK_NS 1000000
#define WINDOW_SLACK_NS 25000000 /* as long as a window may be */
#define POLL_FIRST_NS 20000
#define POLL_MOST_NS 500000
#define ORDER_POLL_NS 100000
#define ORDER_PAUSE_NS 100000   /* who is served and launches nothing for so long is done */
#define MOST_ORDER_NS 100000000 /* for a peer: then side by side with it */
/* After waiting so long for the GPU, launches whose length is known wait for it no more until a
 * measurement has come back: the virtual time, moved by estimates, still keeps the cap. Those
 * nobody has measured yet go one by one, this far apart, and each time twice as far. */
#define MOST_GPU_WAIT_NS 50000000
/* The way to the driver takes some microseconds; longer where a thread has lost its CPU, or the driver
 * loads code. Then what is measured there is given up. */
#define MOST_THREAD_NS 1000000
#define THREAD_POLL_NS 10000
/* Once that has been seen, nothing is held for longer than a moment between what waits for each other,
 * up to that much debt. */
#define AWAITED_NS 500000
#define MOST_AWAITED_DEBT_NS 100000000
#define LEAST_STEP_NS 50000
#define MOST_STEP_NS 1000000
#define MOST_PATIENCE_NS 1000000000

/* Work that runs on beyond its predicted end keeps the neighbours' turns away for some time more,
 * in steps that are small against what it has lasted too long already. */
static void say_it_lasts(struct flight *flight, int64_t now_ns)
{
    const struct batch *oldest = timing_oldest(&flight->timing);
    if (oldest == NULL || now_ns <= oldest->predicted_end_ns)
        return;
    int64_t late_ns = now_ns - oldest->predicted_end_ns;
    int64_t step_ns = late_ns / 2 < LEAST_STEP_NS ? LEAST_STEP_NS : late_ns / 2;
    virtual_time_lasts(region_shared(flight->device),
                       now_ns + (step_ns < MOST_STEP_NS ? step_ns : MOST_STEP_NS));
}

/* True while another process of the container goes first: it came before, it is being served and
 * launches on, or its work is on the GPU and ours is not. Side by side each would measure the
 * other's time with its own; below a cap there is time to go one by one. */
static bool is_after_a_peer(const struct flight *flight, const struct launch_wait_state *wait,
                            int64_t now_ns)
{
    struct vgpu_usage_header *usage = region_usage();
    if (__atomic_load_n(&usage->hi_slot, __ATOMIC_RELAXED) <= 1)
        return false;
    enum arrival_who served = arrival_served(usage, flight->device, region_slot(), now_ns);
    if (wait == NULL && served == ARRIVAL_OWN)
        return false;
    if (arrival_is_behind(usage, flight->device, region_slot(),
                          wait == NULL ? now_ns : wait->since_ns, now_ns))
        return true;
    int64_t pause_ns = served == ARRIVAL_OTHER && wait != NULL ? ORDER_PAUSE_NS : 0;
    return cap_is_kept(flight->device, &flight->window) && flight->timing.count == 0 &&
           virtual_time_busy_ns(region_shared(flight->device), now_ns - pause_ns) > 0;
}

/* By how much the virtual time may be ahead of the clock for a launch to start. The first one that waits
 * starts a burst, which goes on for all threads until one is held again: one launch a burst would be a
 * measurement each. Where streams overlap a burst is long, since at both its ends they overlap less. In its
 * own window a container that is not in debt goes on to the end: each change of turns costs. */
static int64_t slack_of(const struct flight *flight, const struct launch_wait_state *wait,
                        int64_t now_ns)
{
    if (flight->window.state == WINDOW_OPEN && (wait == NULL || !wait->is_capped))
        return virtual_time_cost_ns(WINDOW_SLACK_NS, cap_percent(flight->device));
    if (interlock_is_on(&flight->interlock, now_ns) && flight->timing.count == 0)
        return 0; /* here nobody waits for it: rather than between what waits for each other */
    if (wait != NULL && flight->is_held)
        return flight_overlaps(flight) ? -FLIGHT_OVERLAPPING_NS : 0;
    return flight->window.state == WINDOW_SHARED ? SHARED_SLACK_NS : VIRTUAL_TIME_SLACK_NS;
}

/* How long the cap holds the launch. What is put off for collectives is not due yet. Parts of these are held where they
 * are far ahead only: else a program of nothing but parts would have no cap. */
static int64_t held_ns(const struct flight *flight, const struct launch *launch,
                       const struct launch_wait_state *wait, int64_t now_ns)
{
    int64_t due_ns = now_ns + flight->collectives.put_off_ns;
    return launch->is_collective ? virtual_time_wait_ns(region_shared(flight->device),
                                                        due_ns + COLLECTIVE_AHEAD_NS, 0)
                                 : virtual_time_wait_ns(region_shared(flight->device), due_ns,
                                                        slack_of(flight, wait, now_ns));
}

/* True where a launch cannot be measured with the open batch, which launches of other threads keep open. */
static bool is_kept_apart(struct flight *flight, const struct estimate *estimate, CUstream stream)
{
    const struct batch *open = timing_open_batch(&flight->timing);
    return open != NULL && open->coming > 0 &&
           (estimate->samples == 0 ||
            (!batch_is_on(open, stream) && !batch_can_join(open, stream)));
}

enum launch_wait launch_wait_why(struct flight *flight, const struct launch *launch,
                                 const struct estimate *estimate,
                                 const struct launch_wait_state *wait, int64_t now_ns)
{
    const struct window *window = &flight->window;
    if (window->state == WINDOW_CLOSED && !launch->is_collective)
        return LAUNCH_WAIT_TURN;
    if (cap_is_kept(flight->device, window) && held_ns(flight, launch, wait, now_ns) > 0)
        return LAUNCH_WAIT_CAP;
    if (launch->is_collective) /* others wait for it on the GPU */
        return LAUNCH_WAIT_NOTHING;
    if (window->state == WINDOW_OPEN &&
        !window_fits(flight->device, window, estimate->gpu_ns, now_ns))
        return LAUNCH_WAIT_TURN;
    if (is_after_a_peer(flight, wait, now_ns))
        return LAUNCH_WAIT_ORDER;
    if (is_kept_apart(flight, estimate, launch->stream) &&
        (wait == NULL || wait->thread_ns == 0 || now_ns - wait->thread_ns < MOST_THREAD_NS))
        return LAUNCH_WAIT_THREAD;
    if (estimate->samples == 0 && timing_holds(&flight->timing, estimate->key))
        return LAUNCH_WAIT_GPU;
    if (flight->is_blind)
        return LAUNCH_WAIT_NOTHING;
    if (flight->in_flight_ns > 0 && flight->in_flight_ns + estimate->gpu_ns > FLIGHT_MOST_NS)
        return LAUNCH_WAIT_GPU;
    return flight->timing.count + 1 >= TIMING_BATCHES ? LAUNCH_WAIT_GPU : LAUNCH_WAIT_NOTHING;
}

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* How long a launch is held for a GPU from which nothing comes back. */
static int64_t patience_of(const struct flight *flight, int64_t now_ns)
{
    if (interlock_is_on(&flight->interlock, now_ns) &&
        virtual_time_wait_ns(region_shared(flight->device), now_ns, MOST_AWAITED_DEBT_NS) == 0)
        return AWAITED_NS;
    return MOST_GPU_WAIT_NS > flight->patience_ns ? MOST_GPU_WAIT_NS : flight->patience_ns;
}

static void lose_patience(struct flight *flight, int64_t now_ns)
{
    flight->patience_ns = at_most(2 * patience_of(flight, now_ns), MOST_PATIENCE_NS);
    interlock_release(&flight->interlock, now_ns);
}

/* True when what is on the GPU has run for so much longer than foreseen that it may wait for the launch
 * that the cap holds. That goes then, and all of it is debt. */
static bool is_awaited(struct flight *flight, const struct estimate *estimate, int64_t now_ns)
{
    /* One at a time. */
    int64_t in_vain_ns =
        at_most(flight_late_ns(flight, now_ns), now_ns - flight->interlock.released_ns);
    if (estimate->samples > 0 && estimate->uneven_score == 0 &&
        !interlock_is_on(&flight->interlock, now_ns))
        in_vain_ns -= estimate->gpu_ns; /* may have been charged before anybody knew that */
    return in_vain_ns > patience_of(flight, now_ns);
}

enum launch_wait launch_wait_again(struct flight *flight, const struct launch *launch,
                                   const struct estimate *estimate, struct launch_wait_state *wait,
                                   int64_t now_ns)
{
    enum launch_wait why = launch_wait_why(flight, launch, estimate, wait, now_ns);
    if (why == LAUNCH_WAIT_THREAD && wait->thread_ns == 0)
        wait->thread_ns = now_ns;
    if (wait->looked_ns != 0)
        wait->order_ns += now_ns - wait->looked_ns;
    wait->is_capped |= why == LAUNCH_WAIT_CAP;
    flight->is_held = why == LAUNCH_WAIT_CAP;
    if (why == LAUNCH_WAIT_CAP && is_awaited(flight, estimate, now_ns)) {
        lose_patience(flight, now_ns);
        return LAUNCH_WAIT_NOTHING;
    }
    if (why == LAUNCH_WAIT_NOTHING && wait->is_capped &&
        now_ns - wait->since_ns > INTERLOCK_SOON_NS && flight->settled_ns < wait->since_ns &&
        flight_late_ns(flight, now_ns) > MOST_GPU_WAIT_NS)
        interlock_release(&flight->interlock,
                          now_ns); /* the cap has held it in vain all the same */
    wait->looked_ns = why == LAUNCH_WAIT_ORDER ? now_ns : 0;
    if (why == LAUNCH_WAIT_ORDER && wait->order_ns > MOST_ORDER_NS)
        return LAUNCH_WAIT_NOTHING;
    return why == LAUNCH_WAIT_GPU && wait->is_over ? LAUNCH_WAIT_NOTHING : why;
}

/* When to look again at what the GPU is through with. */
static int64_t next_poll(struct flight *flight, const struct estimate *estimate,
                         struct launch_wait_state *wait, int64_t now_ns)
{
    const struct batch *oldest = timing_oldest(&flight->timing);
    int64_t most_ns = patience_of(flight, now_ns);
    wait->gpu_ns = wait->gpu_ns == 0 ? now_ns : wait->gpu_ns;
    wait->poll_ns = wait->poll_ns == 0 ? POLL_FIRST_NS : wait->poll_ns;
    if (wait->gpu_ns < flight->settled_ns)
        wait->gpu_ns = flight->settled_ns;
    /* What is there may have been charged before anybody knew how long it takes. */
    if (oldest != NULL && estimate->samples > 0)
        most_ns += estimate->gpu_ns;
    const struct batch *open = timing_open_batch(&flight->timing);
    bool is_coming = open != NULL && open->coming > 0;
    if ((oldest == NULL && !is_coming) ||
        now_ns - wait->gpu_ns > most_ns + (oldest != NULL ? oldest->charged_ns : 0)) {
        flight->is_blind |= estimate->samples > 0;
        if (flight->patience_ns == 0) /* once: it may wait for us, and then it uses nothing */
            flight_charge_overdue(flight, now_ns);
        lose_patience(flight, now_ns);
        wait->is_over = true;
        return now_ns;
    }
    if (oldest != NULL && oldest->predicted_end_ns > now_ns + wait->poll_ns)
        return oldest->predicted_end_ns;
    if (wait->poll_ns < POLL_MOST_NS)
        wait->poll_ns *= 2;
    return now_ns + wait->poll_ns;
}

int64_t launch_wait_until(struct flight *flight, const struct launch *launch,
                          const struct estimate *estimate, struct launch_wait_state *wait,
                          enum launch_wait why, int64_t now_ns)
{
    int64_t until_ns = now_ns + held_ns(flight, launch, wait, now_ns);
    if (why == LAUNCH_WAIT_GPU)
        until_ns = next_poll(flight, estimate, wait, now_ns);
    if (why == LAUNCH_WAIT_THREAD)
        until_ns = now_ns + THREAD_POLL_NS;
    if (why == LAUNCH_WAIT_ORDER) {
        int64_t busy_ns = virtual_time_busy_ns(region_shared(flight->device), now_ns);
        until_ns = now_ns + (busy_ns > ORDER_POLL_NS ? busy_ns : ORDER_POLL_NS);
    }
    if (why == LAUNCH_WAIT_CAP && interlock_is_on(&flight->interlock, now_ns) &&
        flight->timing.count > 0)
        until_ns = at_most(until_ns, now_ns + AWAITED_NS);
    until_ns = at_most(until_ns, now_ns + MOST_WAITING_NS);
    if (why == LAUNCH_WAIT_GPU ||
        why == LAUNCH_WAIT_THREAD) /* in vain perhaps: that must not hold the others up */
        arrival_leave(region_usage(), flight->device, region_slot());
    else
        arrival_wait(region_usage(), flight->device, region_slot(), wait->since_ns, until_ns);
    say_it_lasts(flight, now_ns);
    return until_ns;
}
