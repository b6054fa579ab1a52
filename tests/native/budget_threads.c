/* Threads that take launches of mixed prices from a budget which another thread grants and collects
 * all the time: nothing may be lost or charged twice. What budget.c stands on is replaced where it
 * needs a slice or a driver. Arguments: how many threads take, for how many milliseconds at least, and
 * how many kinds of launches there are; from the ninth on nobody knows their prices. Prints
 * what was taken and launched by the threads' own count, the same as it was charged and noted, by
 * how much the most was overdrawn where nobody was interrupted, and what was taken on a stale budget. */
#include "compute/cap/budget.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "compute/cap/cap.h"
#include "compute/cap/launch_queue.h"
#include "compute/cap/virtual_time.h"
#include "driver/capture.h"
#include "memory/local/local_memory.h"
#include "slice/region.h"
#include "slice/waiting.h"

#define MOST_THREADS 16
#define KINDS 16
#define KNOWN_KINDS 8
#define BLOCKS 33
#define PAUSE_SPINS 300
#define MS_NS 1000000
/* By then all of it has happened; a slow machine takes longer for it. */
#define LEAST_BUDGETS 100
#define LEAST_LAUNCHES 1000
#define LEAST_REFUSED 100

static struct flight flight;
static struct vgpu_limits_header limits = {.active_generation = 6};
static struct vgpu_usage_device shared;
static uint64_t grant_number = 10;
static int64_t noted_ns, noted_launches;
static char functions[KINDS][64];
static bool is_over;
static int kinds;

/* ---- what budget.c stands on ----------------------------------------------------------------- */

struct batch *timing_open_batch(struct timing *timing)
{
    return NULL;
}

int64_t flight_left_ns(const struct flight *of, int64_t now_ns)
{
    return virtual_time_left_ns(&shared, now_ns);
}

void flight_count(struct flight *of, const struct estimate *kind, int64_t gpu_ns, int64_t launches,
                  int64_t now_ns)
{
    noted_ns += gpu_ns;
    noted_launches += launches;
}

bool arrival_is_behind(void *usage, uint32_t device, uint32_t slot, int64_t since_ns,
                       int64_t now_ns)
{
    return false;
}

bool gate_pending_is_ambiguous(void)
{
    return false;
}

bool capture_is_any(void)
{
    return false;
}

bool cap_is_kept(uint32_t device, const struct window *window)
{
    return false;
}

uint32_t cap_percent(uint32_t device)
{
    return 100;
}

const void *region_limits(void)
{
    return &limits;
}

void *region_usage(void)
{
    return NULL;
}

uint32_t region_slot(void)
{
    return 0;
}

uint32_t region_device_count(void)
{
    return 1;
}

struct vgpu_usage_device *region_shared(uint32_t device)
{
    return &shared;
}

const uint64_t *window_number_word(uint32_t device)
{
    return &grant_number;
}

/* ---- who takes and who grants ---------------------------------------------------------------- */

static int64_t price_of(int kind)
{
    return 1 + 700 * kind * kind; /* 1 ns to 70 us */
}

struct taker {
    uint64_t random;
    int64_t taken_ns, launches, refused;
};

static void *take(void *argument)
{
    struct taker *taker = argument;
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        taker->random = taker->random * 6364136223846793005u + 1442695040888963407u;
        int kind = (int)(taker->random >> 33) % kinds;
        if (budget_take(functions[kind], BLOCKS, NULL) ||
            budget_take_elsewhere(functions[kind], BLOCKS, NULL)) {
            taker->taken_ns += price_of(kind);
            __atomic_store_n(&taker->launches, taker->launches + 1, __ATOMIC_RELAXED);
        } else {
            __atomic_store_n(&taker->refused, taker->refused + 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static bool is_enough(const struct taker *takers, int count, int64_t budgets)
{
    int64_t launches = 0, refused = 0;
    for (int i = 0; i < count; i++) {
        launches += __atomic_load_n(&takers[i].launches, __ATOMIC_RELAXED);
        refused += __atomic_load_n(&takers[i].refused, __ATOMIC_RELAXED);
    }
    return budgets > LEAST_BUDGETS && launches > LEAST_LAUNCHES && refused > LEAST_REFUSED;
}

static void learn(int kind)
{
    struct estimate *estimate =
        estimate_find(&flight.estimates, estimate_key(functions[kind], BLOCKS));
    for (int sample = 0; sample < (kind < KNOWN_KINDS ? ESTIMATE_KNOWN : ESTIMATE_KNOWN - 1);
         sample++)
        estimate_learn(estimate, price_of(kind), 1, false);
}

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 * MS_NS + now.tv_nsec;
}

/* By how much launches go beyond a budget that nothing interrupts; 0 where none does. */
static int64_t overdrawn(const struct estimate *estimate, int64_t now_ns)
{
    int64_t before_ns = noted_ns, taken_ns = 0;
    budget_grant(&flight, estimate, now_ns);
    for (int kind = kinds - 1; kind >= 0; kind--)
        while (budget_take(functions[kind], BLOCKS, NULL) ||
               budget_take_elsewhere(functions[kind], BLOCKS, NULL))
            taken_ns += price_of(kind);
    int64_t granted_ns = budget.granted_ns;
    budget_collect(&flight, now_ns);
    if (noted_ns - before_ns != taken_ns || taken_ns < granted_ns)
        return -1; /* the cheapest costs one: nothing may be left */
    return taken_ns - granted_ns;
}

/* How many launches go on a budget after the word was changed that it was granted under. */
static int64_t stale(const struct estimate *estimate, uint64_t *word, int64_t now_ns)
{
    int64_t before = noted_launches;
    budget_grant(&flight, estimate, now_ns);
    *word += 2;
    int64_t taken =
        budget_take(functions[0], BLOCKS, NULL) + budget_take_elsewhere(functions[0], BLOCKS, NULL);
    budget_collect(&flight, now_ns);
    return taken + noted_launches - before;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 0;
    kinds = argc > 3 ? atoi(argv[3]) : 0;
    if (count < 1 || count > MOST_THREADS || kinds < KNOWN_KINDS || kinds > KINDS)
        return 2;
    struct estimate *estimate;
    for (int kind = 0; kind < KINDS; kind++)
        learn(kind);
    estimate = estimate_find(&flight.estimates, estimate_key(functions[KNOWN_KINDS - 1], BLOCKS));
    int64_t now_ns = clock_ns(), end_ns = now_ns + atoll(argv[2]) * MS_NS;
    int64_t stale_launches =
        stale(estimate, &limits.active_generation, now_ns) + stale(estimate, &grant_number, now_ns);
    int64_t overdrawn_ns = overdrawn(estimate, now_ns), taken_ns = noted_ns, budgets = 0;
    int64_t launches = noted_launches;

    static struct taker takers[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    for (int i = 0; i < count; i++) {
        takers[i].random = (uint64_t)i + 1;
        pthread_create(&threads[i], NULL, take, &takers[i]);
    }
    while ((now_ns = clock_ns()) < end_ns || !is_enough(takers, count, budgets)) {
        budget_grant(&flight, estimate, now_ns);
        budgets += budget_is_granted(0);
        for (int spin = 0; spin < PAUSE_SPINS; spin++)
            __builtin_ia32_pause();
        if (budgets % 3 == 0) /* whoever takes notices by himself */
            __atomic_fetch_add(budgets % 2 ? &limits.active_generation : &grant_number, 2,
                               __ATOMIC_RELEASE);
        budget_collect(&flight, clock_ns());
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        taken_ns += takers[i].taken_ns;
        launches += takers[i].launches;
    }
    budget_grant(&flight, estimate, now_ns); /* what was put back after the last collection */
    budget_collect(&flight, now_ns);
    printf("%lld %lld %lld %lld %lld %lld %lld\n", (long long)taken_ns, (long long)launches,
           (long long)noted_ns, (long long)noted_launches, (long long)shared.charged_ns,
           (long long)overdrawn_ns, (long long)stale_launches);
    return 0;
}
