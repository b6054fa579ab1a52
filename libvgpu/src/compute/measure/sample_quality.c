#include "compute/measure/sample_quality.h"

#define WRONG_PRICE_FACTOR 2
#define OVERLAP_BATCHES 8 /* next to which what is in flight at both ends is little */

bool sample_quality_is_clean(const struct window *window, const struct batch *batch)
{
    if (batch->window == 0)
        return batch->is_clean && window->number == batch->grant;
    return batch->is_clean &&
           (window->id != batch->window || window->start_ns - WINDOW_EARLY_NS <= batch->opened_ns);
}

/* What ran on after its window, longer than was foreseen, did not have the GPU to itself there. */
static bool has_overrun(const struct batch *batch, int64_t gpu_ns)
{
    return batch->window != 0 && gpu_ns > 2 * batch->charged_ns &&
           batch->opened_ns + gpu_ns > batch->window_end_ns;
}

int64_t sample_quality_bound(struct estimates *estimates, const struct batch *batch, int64_t gpu_ns)
{
    struct estimate *first = estimate_find(estimates, batch->kinds[0].key);
    if (batch->launches == 1) {
        estimate_note_alone(first, gpu_ns);
        return batch->is_bound ? first->alone_ns : gpu_ns;
    }
    if (batch->least_launches <= 1 || first->alone_ns <= 0)
        return gpu_ns;
    double most_ns =
        (double)batch->charged_ns * (double)first->alone_ns / (double)batch->kinds[0].price_ns;
    return gpu_ns < (int64_t)most_ns ? gpu_ns : (int64_t)most_ns;
}

bool sample_quality_teaches(struct estimates *estimates, const struct window *window,
                            const struct batch *batch, int64_t gpu_ns)
{
    if (gpu_ns < batch->charged_ns || (sample_quality_is_clean(window, batch) && !batch->is_bound))
        return true;
    for (uint32_t i = 0; i < batch->kind_count; i++)
        if (estimate_find(estimates, batch->kinds[i].key)->samples == 0)
            return true;
    return false;
}

void sample_quality_learn_shared(struct estimates *estimates, const struct batch *batch,
                                 int64_t gpu_ns)
{
    struct estimate *estimate = estimate_find(estimates, batch->kinds[0].key);
    if (batch->is_bound && gpu_ns >= batch->charged_ns)
        return;
    if (batch->is_sample || (batch->launches == 1 && estimate->samples < ESTIMATE_KNOWN))
        estimate_learn_shared(estimate,
                              (int64_t)((double)gpu_ns * (double)batch->kinds[0].price_ns /
                                        (double)batch->charged_ns));
}

static double ratio_of(int64_t gpu_ns, int64_t charged_ns)
{
    return charged_ns > 0 ? (double)gpu_ns / (double)charged_ns : 1;
}

/* Returns what the batch took as a multiple of its charge, below 0 while nobody can tell. Of the time that
 * it shares with others of ours it had some part: it took no longer than the whole, and what they took
 * together is known of several only. */
static double error_of(struct estimates *estimates, struct overlap *overlap,
                       const struct batch *batch, int64_t gpu_ns, bool is_rough)
{
    int64_t whole_ns = gpu_ns + batch->counted_ns;
    int64_t most_ns = batch->charged_ns < whole_ns ? batch->charged_ns : whole_ns;
    bool is_new = estimate_find(estimates, batch->kinds[0].key)->samples == 0;
    if (!batch->is_shared || is_new || is_rough) {
        *overlap = (struct overlap){0};
        return ratio_of(gpu_ns > most_ns ? gpu_ns : most_ns, batch->charged_ns);
    }
    overlap->gpu_ns += gpu_ns;
    overlap->charged_ns += most_ns;
    if (++overlap->batches < OVERLAP_BATCHES)
        return most_ns < batch->charged_ns ? ratio_of(most_ns, batch->charged_ns) : -1;
    double error = ratio_of(overlap->gpu_ns, overlap->charged_ns);
    *overlap = (struct overlap){0};
    return error;
}

void sample_quality_learn(struct estimates *estimates, struct overlap *overlap,
                          const struct window *window, const struct batch *batch, int64_t gpu_ns)
{
    bool is_rough = !sample_quality_is_clean(window, batch) || has_overrun(batch, gpu_ns);
    double ratio = error_of(estimates, overlap, batch, gpu_ns, is_rough);
    if (ratio < 0)
        return;
    for (uint32_t i = 0; i < batch->kind_count; i++) {
        uint32_t launches = batch->kinds[i].launches;
        if (launches == 0)
            continue;
        struct estimate *estimate = estimate_find(estimates, batch->kinds[i].key);
        double own_ns = (double)batch->kinds[i].price_ns * (double)launches * ratio;
        estimate_learn(estimate, (int64_t)(own_ns + 0.5), launches, is_rough);
    }
}

bool sample_quality_is_wrong(const struct batch *sample, int64_t gpu_ns, bool is_shared)
{
    return gpu_ns > WRONG_PRICE_FACTOR * sample->charged_ns ||
           (is_shared && 4 * gpu_ns < 3 * sample->charged_ns);
}

void sample_quality_learn_awaited(struct estimates *estimates, struct overlap *overlap,
                                  const struct batch *batch, int64_t most_ns)
{
    *overlap = (struct overlap){0};
    /* It may have come back by chance: next to nothing would let all that follow go. */
    most_ns = most_ns > ESTIMATE_GUESS_NS ? most_ns : ESTIMATE_GUESS_NS;
    for (uint32_t i = 0; i < batch->kind_count; i++) {
        struct estimate *estimate = estimate_find(estimates, batch->kinds[i].key);
        if (estimate->gpu_ns > most_ns)
            estimate_learn(estimate, most_ns, 1, true);
    }
}
