#include "call_cost.h"

#include <time.h>

/* Longer ones sleep until this long before their end; a sleeper may be 75 us late. */
#define SPIN_NS 200000ull

/* The outermost call of the thread; NULL: none that costs anything. */
static __thread struct call_timer *under_way;

void call_begin(struct call_timer *timer, uint32_t cost_ns)
{
    if (under_way)
        return;
    *timer = (struct call_timer){.begun_ns = sim_now_ns(), .cost_ns = cost_ns};
    under_way = timer;
}

void call_has_waited(void)
{
    if (under_way)
        under_way->begun_ns = sim_now_ns();
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
