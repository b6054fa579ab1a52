/* How a program uses its streams, as far as that decides how its launches are measured: by turns, so that
 * what they launch may overlap, or each for a few launches only.
 *
 * Averages over the last 16 launches or so that took the long way. Pure; serialised by its caller. All
 * zero is ready to use. */
#ifndef VGPU_STREAM_HABITS_H
#define VGPU_STREAM_HABITS_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/cuda_api.h"

struct stream_habits {
    CUstream last;    /* of the last launch; compared only */
    uint32_t changes; /* how often that was another one, of STREAM_HABITS_ALWAYS */
    uint32_t endings; /* how often a stream ended */
};

#define STREAM_HABITS_ALWAYS 1024

void stream_habits_launch(struct stream_habits *habits, CUstream stream);
void stream_habits_end(struct stream_habits *habits);

/* True while there is a stream's end for every ten launches or so, as where each request has a stream of
 * its own. A measurement ends with its stream, or has one end on each, so batches would cost about as
 * many events as there are launches. */
bool stream_habits_are_short(const struct stream_habits *habits);

/* True while launches go to several streams in turn. */
bool stream_habits_overlap(const struct stream_habits *habits);

#endif
