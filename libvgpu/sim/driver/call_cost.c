#include "call_cost.h"

#include <time.h>

#include "spread.h"

/* Longer ones sleep until this long before their end; a sleeper may be 75 us late. */
#define SPIN_NS 200000ull

/* A pause may last so long: not taken this close to the end, which a short call would miss. */
#define PAUSE_NS 200ull

/* Calls of that cost, so many at a time, tell what is spent before the first look at the clock and
 * after the last one. Other programs and a slow processor only make it more, so the least counts; and
 * since a processor may be slow for some time, waits that are long enough are used to look again. */
#define TRIAL_NS 500
#define TRIALS 20
#define BATCHES 5
#define LOOK_AGAIN_NS 30000ull /* is left of a wait: about three batches */

/* The outermost call of the thread; NULL: none that costs anything. */
static __thread struct call_timer *under_way;
static __thread uint64_t last_ns; /* when this thread was through with its last call */
static __thread uint64_t calls;   /* that cost anything, of this thread so far */
static uint32_t own_ns;           /* of a call, by any thread; 0 until it is known */

static uint64_t begun_now(void)
{
    return sim_now_ns() - __atomic_load_n(&own_ns, __ATOMIC_RELAXED);
}

static void begin(struct call_timer *timer, uint64_t begun_ns, uint64_t cost_ns,
                  uint64_t submitted_after_ns)
{
    *timer = (struct call_timer){begun_ns, (uint32_t)cost_ns};
    under_way = timer;
    sim_queue_not_before(begun_ns + submitted_after_ns);
}

void call_begin(struct call_timer *timer, enum sim_call call)
{
    if (under_way)
        return;
    const struct sim_calibration *calibration = driver.calibration;
    uint64_t begun_ns = begun_now(), number = calls++;
    bool is_cold = begun_ns > last_ns + calibration->cold_after_ns;
    uint64_t cold_ns = is_cold ? calibration->cold_call_ns[call] : 0;
    uint64_t cost_ns = calibration->call_ns[call];
    uint64_t submitted_ns = cost_ns / 100 * calibration->submit_percent;
    submitted_ns = sim_spread(calibration, SIM_SPREAD_SUBMISSION, submitted_ns, number);
    submitted_ns = cold_ns + (submitted_ns < cost_ns ? submitted_ns : cost_ns);
    begin(timer, begun_ns, sim_spread(calibration, SIM_SPREAD_CALL, cost_ns + cold_ns, number),
          sim_spread(calibration, SIM_SPREAD_CALL, submitted_ns, number));
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

static void learn_own(void)
{
    uint32_t known_ns = __atomic_load_n(&own_ns, __ATOMIC_RELAXED);
    uint64_t begun_ns = sim_now_ns();
    for (int i = 0; i < TRIALS; i++) {
        struct call_timer timer = {0};
        begin(&timer, begun_now(), TRIAL_NS, 0);
        call_end(&timer);
    }
    uint64_t shown_ns = (sim_now_ns() - begun_ns) / TRIALS + known_ns - TRIAL_NS;
    if (known_ns == 0 || shown_ns < known_ns)
        __atomic_store_n(&own_ns, (uint32_t)shown_ns, __ATOMIC_RELAXED);
}

void call_end(struct call_timer *timer)
{
    if (!timer->begun_ns)
        return;
    under_way = NULL;
    sim_queue_not_before(0);
    uint64_t end_ns = timer->begun_ns + timer->cost_ns;
    uint64_t now_ns = sim_now_ns();
    uint64_t spun_ns = SIM_SPUN_NS(SPIN_NS);
    if (end_ns > now_ns + spun_ns) {
        uint64_t wake_ns = end_ns - spun_ns;
        struct timespec wake = {.tv_sec = (time_t)(wake_ns / 1000000000u),
                                .tv_nsec = (long)(wake_ns % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL); /* early is fine */
        now_ns = sim_now_ns();
    }
    while (now_ns + LOOK_AGAIN_NS < end_ns) {
        learn_own();
        now_ns = sim_now_ns();
    }
    while (now_ns < end_ns) {
        if (now_ns + PAUSE_NS < end_ns)
            __builtin_ia32_pause();
        now_ns = sim_now_ns();
    }
    last_ns = now_ns;
}

void call_measure(void)
{
    int call = 0;
    while (call < SIM_CALLS && !driver.calibration->call_ns[call])
        call++;
    if (call == SIM_CALLS) /* none costs anything */
        return;
    for (int batch = 0; batch < BATCHES; batch++)
        learn_own();
}
