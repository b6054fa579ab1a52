/* What a measurement is worth: whether others may have run meanwhile, and what it teaches.
 *
 * Pure; serialised by its caller (the lock of `struct flight`). */
#ifndef VGPU_SAMPLE_QUALITY_H
#define VGPU_SAMPLE_QUALITY_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/measure/estimate.h"
#include "compute/measure/timing.h"
#include "compute/turns/window.h"

/* What batches in a row took together and were charged, whose times overlap. All zero is ready to use. */
struct overlap {
    int64_t gpu_ns;
    int64_t charged_ns;
    uint32_t batches;
};

/* True when nobody else ran meanwhile: it was opened in a window that was not moved behind a
 * neighbour's overrun since, or nobody has begun to want the device since. `window` is the grant as
 * last looked at. */
bool sample_quality_is_clean(const struct window *window, const struct batch *batch);

/* Notes what a launch took alone. Of a chain, it returns what that took without what the GPU may have idled:
 * launches that overlap take no longer than each alone. Else it returns gpu_ns. */
int64_t sample_quality_bound(struct estimates *estimates, const struct batch *batch,
                             int64_t gpu_ns);

/* True when the measurement tells something: always of a kind that nobody has measured before, and
 * when it is less than was expected, since neighbours can only have made it longer. */
bool sample_quality_teaches(struct estimates *estimates, const struct window *window,
                            const struct batch *batch, int64_t gpu_ns);

/* Spreads what a batch took over its kinds of launch, in proportion to what each was expected to
 * take. Of batches whose times overlap that is known of several together. */
void sample_quality_learn(struct estimates *estimates, struct overlap *overlap,
                          const struct window *window, const struct batch *batch, int64_t gpu_ns);

/* Learns from a sample that was taken while others used the GPU, too: it corrects nothing. */
void sample_quality_learn_shared(struct estimates *estimates, const struct batch *batch,
                                 int64_t gpu_ns);

/* True when a sample shows a price to be far off. What is measured next to others is too long, so
 * that a shorter one tells most there. */
bool sample_quality_is_wrong(const struct batch *sample, int64_t gpu_ns, bool is_shared);

/* Lowers the prices of what waited for a launch that we held, to what it took after that went. What it
 * took before is charged, but says nothing of the next time. */
void sample_quality_learn_awaited(struct estimates *estimates, struct overlap *overlap,
                                  const struct batch *batch, int64_t most_ns);

#endif
