#include "compute/measure/estimate.h"

#include <stddef.h>

#define AVERAGE_OVER 4
#define LEAST_PRICE_NS 1

struct estimate *estimate_look(struct estimates *estimates, uint64_t key)
{
    for (uint64_t i = 0; i < ESTIMATE_PROBES; i++) {
        struct estimate *at = &estimates->table[(estimate_home(key) + i) % ESTIMATE_KEYS];
        if (__atomic_load_n(&at->key, __ATOMIC_RELAXED) == key)
            return at;
    }
    return NULL;
}

struct estimate *estimate_find(struct estimates *estimates, uint64_t key)
{
    uint64_t home = estimate_home(key);
    struct estimate *place = NULL;
    for (uint64_t i = 0; i < ESTIMATE_PROBES; i++) {
        struct estimate *at = &estimates->table[(home + i) % ESTIMATE_KEYS];
        if (at->key == key)
            return at;
        if (at->key == 0) {
            place = at;
            break;
        }
    }
    if (place == NULL)
        place = &estimates->table[home];
    /* One by one, this first: others read key and price without a lock. */
    __atomic_store_n(&place->budget_price_ns, ESTIMATE_NO_PRICE_NS, __ATOMIC_RELEASE);
    place->gpu_ns = ESTIMATE_GUESS_NS;
    place->samples = place->shared_samples = place->given_up = 0;
    place->uneven_score = 0;
    place->is_rough = place->is_part = false;
    place->shared_least_ns = place->alone_ns = 0;
    __atomic_store_n(&place->key, key, __ATOMIC_RELEASE);
    return place;
}

static void note_evenness(struct estimate *estimate, int64_t sample_ns)
{
    int64_t price_ns = estimate_price(estimate);
    if (estimate->samples < ESTIMATE_KNOWN)
        return;
    bool is_even = sample_ns <= ESTIMATE_UNEVEN_FACTOR * price_ns &&
                   ESTIMATE_UNEVEN_FACTOR * sample_ns >= price_ns;
    if (!is_even)
        estimate->uneven_score =
            estimate->uneven_score == 0 ? ESTIMATE_UNEVEN_SAMPLES : 2 * ESTIMATE_UNEVEN_SAMPLES;
    else if (estimate->uneven_score > 0)
        estimate->uneven_score--;
}

bool estimate_is_uneven(const struct estimate *estimate, int64_t least_ns)
{
    return estimate->uneven_score > ESTIMATE_UNEVEN_SAMPLES && estimate_price(estimate) >= least_ns;
}

void estimate_learn(struct estimate *estimate, int64_t gpu_ns, uint32_t launches, bool is_rough)
{
    int64_t sample = gpu_ns / (launches == 0 ? 1 : launches);
    if (estimate->samples == 0 || is_rough || estimate->is_rough)
        estimate->gpu_ns = sample;
    else {
        note_evenness(estimate, sample);
        estimate->gpu_ns += (sample - estimate->gpu_ns) / AVERAGE_OVER;
    }
    estimate->is_rough = is_rough;
    if (estimate->samples < ESTIMATE_FIRST_BATCHES)
        estimate->samples++;
    if (estimate->samples >= ESTIMATE_KNOWN)
        __atomic_store_n(&estimate->budget_price_ns,
                         estimate->is_part || estimate_is_uneven(estimate, ESTIMATE_UNEVEN_NS)
                             ? ESTIMATE_NO_PRICE_NS
                             : estimate_price(estimate),
                         __ATOMIC_RELAXED);
}

void estimate_note_alone(struct estimate *estimate, int64_t gpu_ns)
{
    if (gpu_ns >= estimate->alone_ns)
        estimate->alone_ns = gpu_ns;
    else
        estimate->alone_ns -= (estimate->alone_ns - gpu_ns) / AVERAGE_OVER;
}

void estimate_learn_shared(struct estimate *estimate, int64_t gpu_ns)
{
    if (estimate->shared_samples == 0 || gpu_ns < estimate->shared_least_ns)
        estimate->shared_least_ns = gpu_ns;
    estimate->shared_samples++;
    bool is_known = estimate->samples >= ESTIMATE_KNOWN; /* a new kind needs some price first */
    /* Of two bounds the lower one is nearer; one that is higher may be by chance. */
    bool is_nearer = estimate->is_rough && gpu_ns < estimate->gpu_ns;
    if (is_known && !is_nearer && estimate->shared_samples < ESTIMATE_SHARED_SAMPLES)
        return;
    if (is_known)
        estimate->shared_samples = 0;
    estimate_learn(estimate, estimate->shared_least_ns, 1, true);
}

void estimate_doubt_all(struct estimates *estimates)
{
    for (uint32_t i = 0; i < ESTIMATE_KEYS; i++) {
        struct estimate *estimate = &estimates->table[i];
        if (estimate->samples < ESTIMATE_KNOWN)
            continue;
        __atomic_store_n(&estimate->budget_price_ns, ESTIMATE_NO_PRICE_NS, __ATOMIC_RELAXED);
        estimate->samples = ESTIMATE_KNOWN - 1;
        estimate->alone_ns = 0;
        estimate->is_rough = true;
    }
}

void estimate_mark_part(struct estimate *estimate)
{
    if (estimate->is_part)
        return;
    estimate->is_part = true;
    __atomic_store_n(&estimate->budget_price_ns, ESTIMATE_NO_PRICE_NS, __ATOMIC_RELAXED);
}

int64_t estimate_price(const struct estimate *estimate)
{
    return estimate->gpu_ns > LEAST_PRICE_NS ? estimate->gpu_ns : LEAST_PRICE_NS;
}

uint32_t estimate_batch_limit(const struct estimate *estimate)
{
    if (estimate->samples >= ESTIMATE_FIRST_BATCHES)
        return UINT32_MAX;
    return 1u << estimate->samples;
}
