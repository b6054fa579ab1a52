#include "compute/cap/throttle.h"

#include <string.h>

#include "compute/cap/budget.h"
#include "compute/cap/cap.h"
#include "compute/cap/collective_debt.h"
#include "compute/cap/flight.h"
#include "compute/cap/launch_queue.h"
#include "compute/cap/launch_wait.h"
#include "compute/cap/uncapped.h"
#include "compute/cap/virtual_time.h"
#include "compute/measure/estimate.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "slice/waiting.h"

/* A context that ends waits this long for its measurements, or a program could run its work in one
 * context after another unmeasured. The driver waits for the work anyway. */
#define MOST_ENDING_NS 2000000000
#define ENDING_POLL_NS 500000

/* Of a change of processes, what a container is charged for that waited for its cap while others use
 * the GPU: with the caps of all given out, theirs would have nowhere else to come from. An H100 takes
 * 127 to 230 us for one. */
#define CHANGE_PART_NS 50000

/* A driver with no room for more in a channel makes who records an event there wait, with the lock. What
 * would make room may itself wait for another thread, so nobody waits longer for the lock than this. */
#define MOST_LOCKED_NS 10000000
#define LOCK_IS_STUCK (-1)

/* Ready to use when all zero; flight_of sets the device. */
static struct flight flights[VGPU_MAX_DEVICES];

static struct flight *flight_of(uint32_t device)
{
    struct flight *flight = &flights[device];
    if (__atomic_load_n(&flight->device, __ATOMIC_RELAXED) != device)
        __atomic_store_n(&flight->device, device, __ATOMIC_RELAXED);
    return flight;
}

void throttle_after_fork(void)
{
    memset(flights, 0, sizeof flights);
    budget_reset();
}

/* Looks at the grant and the cap, and keeps an elastic container out of debt. */
static void look(struct flight *flight, int64_t now_ns)
{
    flight->window = window_at(flight->device, now_ns);
    virtual_time_set_percent(region_shared(flight->device), now_ns, cap_percent(flight->device));
    if (!cap_is_kept(flight->device, &flight->window))
        virtual_time_forgive(region_shared(flight->device), now_ns);
    if (flight->in_flight_ns <= 0) /* else there may be more debt than is known */
        collective_debt_bound(&flight->collectives,
                              virtual_time_wait_ns(region_shared(flight->device), now_ns, 0),
                              now_ns);
}

/* Waits, unlocked, for those who came before and then until the launch may start. Returns locked, and with its
 * place among the container's processes still taken; or unlocked and LOCK_IS_STUCK. */
static int64_t wait_to_start(struct flight *flight, const struct launch *launch, int64_t now_ns)
{
    struct launch_wait_state wait = {.since_ns = now_ns};
    lock_give_back(&flight->lock);
    ticket_lock_enter(&flight->launches);
    for (int64_t counted_ns = now_ns, wakes_ns = INT64_MAX;; counted_ns = now_ns) {
        if (!lock_take_within(&flight->lock, LOCK_THROTTLE, MOST_LOCKED_NS)) {
            ticket_lock_leave(&flight->launches);
            return LOCK_IS_STUCK;
        }
        now_ns = waiting_now_ns();
        region_add(&region_shared(flight->device)->stalled_ns, now_ns - counted_ns);
        /* Whoever was stopped meanwhile, perhaps with its whole container, has saved up no more than one that
         * paused between launches. Afterwards it would never be seen idle, and have what it had missed. */
        if (now_ns - VIRTUAL_TIME_BURST_NS > wakes_ns)
            virtual_time_enter(region_shared(flight->device), now_ns);
        wakes_ns = INT64_MAX;
        flight_harvest(flight, now_ns);
        look(flight, now_ns);
        struct estimate *estimate = estimate_find(&flight->estimates, launch->key);
        enum launch_wait why = launch_wait_again(flight, launch, estimate, &wait, now_ns);
        if (why == LAUNCH_WAIT_NOTHING || !cap_is_set(flight->device))
            break;
        flight_close(flight, now_ns);
        int64_t until_ns = launch_wait_until(flight, launch, estimate, &wait, why, now_ns);
        struct window window = flight->window;
        lock_give_back(&flight->lock);
        if (window.state == WINDOW_OPEN && (why == LAUNCH_WAIT_CAP || why == LAUNCH_WAIT_TURN))
            window_yield(flight->device, &window, why == LAUNCH_WAIT_TURN);
        if (why != LAUNCH_WAIT_CAP)
            window_want(flight->device, &window, now_ns, why == LAUNCH_WAIT_TURN);
        if (why == LAUNCH_WAIT_TURN) {
            window_wait(flight->device, &window, now_ns);
            continue;
        }
        /* A look may take longer than its pause: others need the lock to hand over what it waits for. */
        int64_t left_ns = waiting_now_ns();
        int64_t least_ns = left_ns + (left_ns - now_ns);
        wakes_ns = until_ns > least_ns ? until_ns : least_ns;
        waiting_sleep_until(wakes_ns);
    }
    ticket_lock_leave(&flight->launches);
    if (wait.is_capped && flight->window.state == WINDOW_SHARED)
        virtual_time_advance(region_shared(flight->device), CHANGE_PART_NS,
                             cap_percent(flight->device));
    region_add(&region_counters(flight->device)->held_ns, now_ns - wait.since_ns);
    wait_histogram_note(region_counters(flight->device), now_ns - wait.since_ns);
    return now_ns;
}

/* A launch whose thread could not look at what is in flight: charged by its price, not measured. */
static void charge_blindly(struct flight *flight, const struct launch *launch, int64_t now_ns)
{
    const struct estimate *known = estimate_look(&flight->estimates, launch->key);
    int64_t price_ns = known == NULL ? ESTIMATE_GUESS_NS : estimate_price(known);
    virtual_time_charge(region_shared(flight->device), now_ns, price_ns,
                        cap_percent(flight->device));
    region_add(&region_counters(flight->device)->launches, 1);
    region_add(&region_counters(flight->device)->gpu_time_ns, price_ns);
}

void throttle_before(struct launch *launch)
{
    struct flight *flight = flight_of(launch->device);
    int64_t now_ns = waiting_now_ns();
    virtual_time_enter(region_shared(launch->device), now_ns);
    if (!lock_take_within(&flight->lock, LOCK_THROTTLE, MOST_LOCKED_NS)) {
        charge_blindly(flight, launch, now_ns);
        return;
    }
    look(flight, now_ns);
    flight_catch_up(flight, now_ns);
    window_want(launch->device, &flight->window, now_ns, false);
    struct estimate *estimate = estimate_find(&flight->estimates, launch->key);
    bool has_queue = !launch->is_collective && ticket_lock_is_busy(&flight->launches);
    bool waits = !launch->has_begun &&
                 (has_queue ||
                  launch_wait_why(flight, launch, estimate, NULL, now_ns) != LAUNCH_WAIT_NOTHING);
    if (waits) {
        now_ns = wait_to_start(flight, launch, now_ns);
        if (now_ns == LOCK_IS_STUCK) {
            charge_blindly(flight, launch, waiting_now_ns());
            return;
        }
        estimate = estimate_find(&flight->estimates, launch->key); /* it may have been replaced */
    }
    flight_enlist(flight, launch, estimate, now_ns);
    if (waits) /* once it is charged: the next one must find the virtual time moved */
        arrival_serve(region_usage(), launch->device, region_slot(), now_ns);
    if (launch->batch == 0 && !launch->is_collective) /* each of those is charged by itself */
        budget_grant(flight, estimate, now_ns);
    lock_give_back(&flight->lock);
}

void throttle_after(const struct launch *launch)
{
    struct flight *flight = flight_of(launch->device);
    int64_t now_ns = waiting_now_ns(); /* before the lock: others may have it */
    if (!lock_take_within(&flight->lock, LOCK_THROTTLE, MOST_LOCKED_NS))
        return; /* whoever looks next gives the batch up */
    if (flight_launched(flight, launch, now_ns) && !launch->is_collective)
        budget_grant(flight, estimate_find(&flight->estimates, launch->key), now_ns);
    lock_give_back(&flight->lock);
}

/* True where an arbiter was there at the last launch, for any device. */
static bool is_arbitrated(void)
{
    for (uint32_t device = 0; device < region_device_count(); device++)
        if (flights[device].window.state != WINDOW_NONE)
            return true;
    return false;
}

/* The program has waited for the GPU: for which, is not known. */
static void count_stall(int64_t stalled_ns)
{
    for (uint32_t device = 0; device < region_device_count(); device++)
        if (flights[device].window.state != WINDOW_NONE)
            region_add(&region_shared(device)->stalled_ns, stalled_ns);
}

/* Ends what is measured, and gives back what is prepaid. */
static void close_open(struct flight *flight)
{
    if (!lock_take_within(&flight->lock, LOCK_THROTTLE, MOST_LOCKED_NS))
        return;
    flight_close(flight, waiting_now_ns());
    lock_give_back(&flight->lock);
}

int64_t throttle_before_wait(void)
{
    if (region_open() != REGION_MAPPED)
        return 0;
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct flight *flight = flight_of(device);
        if (__atomic_load_n(&flight->timing.is_open, __ATOMIC_RELAXED) || budget_is_granted(device))
            close_open(flight);
    }
    return is_arbitrated() ? waiting_now_ns() : 0;
}

void throttle_after_wait(int64_t began_ns)
{
    if (began_ns == 0 || region_open() != REGION_MAPPED)
        return;
    count_stall(waiting_now_ns() - began_ns);
}

void throttle_found_idle(CUstream stream)
{
    if (region_open() != REGION_MAPPED)
        return;
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct flight *flight = flight_of(device);
        if (__atomic_load_n(&flight->timing.uncertain, __ATOMIC_RELAXED) == NULL ||
            !lock_try(&flight->lock, LOCK_THROTTLE))
            continue;
        flight_harvest(flight, waiting_now_ns());
        timing_calibrate(&flight->timing, stream);
        lock_give_back(&flight->lock);
    }
}

/* What this process has launched so far, on all devices. */
static uint64_t launches_so_far(void)
{
    uint64_t launches = budget_launches();
    for (uint32_t device = 0; device < region_device_count(); device++)
        launches += __atomic_load_n(&region_counters(device)->launches, __ATOMIC_RELAXED);
    return launches;
}

void throttle_asked_in_vain(void)
{
    static __thread struct {
        int64_t at_ns; /* 0: never */
        uint64_t launches;
    } before;
    if (region_open() != REGION_MAPPED || !is_arbitrated())
        return;
    int64_t now_ns = waiting_now_ns();
    uint64_t launches = launches_so_far();
    if (before.at_ns != 0 && before.launches == launches)
        count_stall(now_ns - before.at_ns);
    before.at_ns = now_ns;
    before.launches = launches;
}

void throttle_before_capture(void)
{
    if (region_open() != REGION_MAPPED)
        return;
    for (uint32_t device = 0; device < region_device_count(); device++)
        close_open(flight_of(device));
}

void throttle_forget_stream(CUstream stream)
{
    if (region_open() != REGION_MAPPED)
        return;
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct flight *flight = flight_of(device);
        if (!lock_take_within(&flight->lock, LOCK_THROTTLE, MOST_LOCKED_NS)) {
            timing_cut(&flight->timing);
            continue;
        }
        flight_forget_stream(flight, stream, waiting_now_ns());
        lock_give_back(&flight->lock);
    }
}

void throttle_forget_functions(void)
{
    if (region_open() != REGION_MAPPED)
        return;
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct flight *flight = flight_of(device);
        lock_take(&flight->lock, LOCK_THROTTLE);
        estimate_doubt_all(&flight->estimates);
        lock_give_back(&flight->lock);
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
    uncapped_forget_context(context);
    for (uint32_t device = 0; device < region_device_count(); device++) {
        struct flight *flight = flight_of(device);
        int64_t give_up_ns = waiting_now_ns() + MOST_ENDING_NS;
        lock_take(&flight->lock, LOCK_THROTTLE);
        flight_close(flight, waiting_now_ns());
        flight_harvest(flight, waiting_now_ns());
        while (is_running(&flight->timing, context) && waiting_now_ns() < give_up_ns) {
            lock_give_back(&flight->lock);
            waiting_sleep_until(waiting_now_ns() + ENDING_POLL_NS);
            lock_take(&flight->lock, LOCK_THROTTLE);
            flight_harvest(flight, waiting_now_ns());
        }
        flight_forget(flight, context, waiting_now_ns());
        lock_give_back(&flight->lock);
    }
}
