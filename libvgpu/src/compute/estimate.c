#include "compute/estimate.h"

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
    /* First: others read it without a lock. */
    __atomic_store_n(&place->prepaid_ns, ESTIMATE_NO_PRICE_NS, __ATOMIC_RELEASE);
    *place = (struct estimate){
        .key = key, .gpu_ns = ESTIMATE_GUESS_NS, .prepaid_ns = ESTIMATE_NO_PRICE_NS};
    return place;
}

/* Notes what was charged before the price changes, less what was measured with it. */
static void put_by(struct estimate *estimate, int64_t measured_ns)
{
    int64_t charged_ns = estimate->unsampled_ns - measured_ns;
    estimate->unsampled_ns = 0;
    if (charged_ns <= 0)
        return;
    estimate->past_ns += (float)charged_ns;
    estimate->past_launches += (float)charged_ns / (float)estimate_price(estimate);
    if (estimate->past_ns > ESTIMATE_MOST_OWED_NS) { /* the latest of them tell most */
        estimate->past_launches *= ESTIMATE_MOST_OWED_NS / estimate->past_ns;
        estimate->past_ns = ESTIMATE_MOST_OWED_NS;
    }
}

int64_t estimate_settle(struct estimate *estimate, int64_t sample_ns, int64_t charged_ns)
{
    put_by(estimate, charged_ns);
    float owed_ns = (float)sample_ns * estimate->past_launches - estimate->past_ns;
    estimate->past_ns = estimate->past_launches = 0;
    return (int64_t)(owed_ns > ESTIMATE_MOST_OWED_NS ? ESTIMATE_MOST_OWED_NS : owed_ns);
}

void estimate_learn(struct estimate *estimate, int64_t gpu_ns, uint32_t launches, bool is_rough)
{
    int64_t sample = gpu_ns / (launches == 0 ? 1 : launches);
    if (is_rough) /* what was charged at a bound is not counted up */
        estimate->unsampled_ns = 0;
    else
        put_by(estimate, estimate_price(estimate) * launches);
    if (estimate->samples == 0 || is_rough || estimate->is_rough)
        estimate->gpu_ns = sample;
    else
        estimate->gpu_ns += (sample - estimate->gpu_ns) / AVERAGE_OVER;
    estimate->is_rough = is_rough;
    if (estimate->samples < ESTIMATE_FIRST_BATCHES)
        estimate->samples++;
    if (estimate->samples >= ESTIMATE_KNOWN)
        __atomic_store_n(&estimate->prepaid_ns, estimate_price(estimate), __ATOMIC_RELAXED);
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
        __atomic_store_n(&estimate->prepaid_ns, ESTIMATE_NO_PRICE_NS, __ATOMIC_RELAXED);
        estimate->samples = ESTIMATE_KNOWN - 1;
        estimate->is_rough = true;
    }
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
