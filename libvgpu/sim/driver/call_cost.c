#include "call_cost.h"

#include <time.h>

/* Longer ones sleep until this long before their end; a sleeper may be 75 us late. */
#define SPIN_NS 200000ull

/* Calls of that cost, so many at a time, tell what is spent before the first look at the clock and
 * after the last one. Other programs only make it more, so the least counts. */
#define TRIAL_NS 500
#define TRIALS 20
#define BATCHES 5

/* The outermost call of the thread; NULL: none that costs anything. */
static __thread struct call_timer *under_way;
static uint32_t own_ns; /* written under driver.mutex, before driver.ready */

void call_begin(struct call_timer *timer, uint32_t cost_ns)
{
    if (under_way)
        return;
    *timer = (struct call_timer){.begun_ns = sim_now_ns() - own_ns, .cost_ns = cost_ns};
    under_way = timer;
    sim_queue_not_before(timer->begun_ns + cost_ns / 100 * driver.submit_percent);
}

void call_has_waited(void)
{
    uint64_t until_ns = sim_queue_waited_until();
    if (under_way && until_ns > under_way->begun_ns)
        under_way->begun_ns = until_ns;
}

void call_takes_instead(uint32_t cost_ns)
{
    if (under_way)
        under_way->cost_ns = cost_ns;
}

void call_takes_longer(uint64_t extra_ns)
{
    if (under_way) /* as if it had begun later */
        under_way->begun_ns += extra_ns;
}

void call_end(struct call_timer *timer)
{
    if (!timer->begun_ns)
        return;
    under_way = NULL;
    sim_queue_not_before(0);
    uint64_t end_ns = timer->begun_ns + timer->cost_ns;
    uint64_t now_ns = sim_now_ns();
    if (end_ns > now_ns + SPIN_NS) {
        uint64_t wake_ns = end_ns - SPIN_NS;
        struct timespec wake = {.tv_sec = (time_t)(wake_ns / 1000000000u),
                                .tv_nsec = (long)(wake_ns % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL); /* early is fine */
    }
    while (sim_now_ns() < end_ns)
        __builtin_ia32_pause();
}

void call_measure(void)
{
    uint64_t least_ns = UINT64_MAX;
    int call = 0;
    own_ns = 0;
    while (call < SIM_CALLS && !driver.call_ns[call])
        call++;
    if (call == SIM_CALLS) /* none costs anything */
        return;
    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t begun_ns = sim_now_ns();
        for (int i = 0; i < TRIALS; i++) {
            struct call_timer timer = {0};
            call_begin(&timer, TRIAL_NS);
            call_end(&timer);
        }
        uint64_t took_ns = (sim_now_ns() - begun_ns) / TRIALS;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    own_ns = (uint32_t)(least_ns - TRIAL_NS);
}
