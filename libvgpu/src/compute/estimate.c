#include "compute/estimate.h"

#include <stddef.h>

#define PROBES 8
#define AVERAGE_OVER 4
#define KEPT_BITS 4
#define LEAST_PRICE_NS 100

/* Keeps the leading bits of a count. */
static uint64_t bucket_of(uint64_t blocks)
{
    int width = 64 - __builtin_clzll(blocks | 1);
    int dropped = width > KEPT_BITS ? width - KEPT_BITS : 0;
    return blocks >> dropped << dropped;
}

uint64_t estimate_key(const void *function, uint64_t blocks)
{
    uint64_t mixed = (uint64_t)(uintptr_t)function ^ bucket_of(blocks) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 32) * 0xff51afd7ed558ccdu;
    mixed ^= mixed >> 29;
    return mixed != 0 ? mixed : 1;
}

struct estimate *estimate_find(struct estimates *estimates, uint64_t key)
{
    struct estimate *home = &estimates->table[key % ESTIMATE_KEYS];
    struct estimate *place = NULL;
    for (uint64_t i = 0; i < PROBES; i++) {
        struct estimate *at = &estimates->table[(key + i) % ESTIMATE_KEYS];
        if (at->key == key)
            return at;
        if (at->key == 0) {
            place = at;
            break;
        }
    }
    if (place == NULL)
        place = home;
    *place = (struct estimate){.key = key, .gpu_ns = ESTIMATE_GUESS_NS};
    return place;
}

void estimate_learn(struct estimate *estimate, int64_t gpu_ns, uint32_t launches, bool is_rough)
{
    int64_t sample = gpu_ns / (launches == 0 ? 1 : launches);
    if (estimate->samples == 0 || is_rough || estimate->is_rough)
        estimate->gpu_ns = sample;
    else
        estimate->gpu_ns += (sample - estimate->gpu_ns) / AVERAGE_OVER;
    estimate->is_rough = is_rough;
    if (estimate->samples < ESTIMATE_FIRST_BATCHES)
        estimate->samples++;
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
