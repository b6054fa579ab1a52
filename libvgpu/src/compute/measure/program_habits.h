/* How a program behaves, as far as that decides how its launches are measured and held. Pure; serialised by its
 * caller. All zero is ready to use. */
#ifndef VGPU_PROGRAM_HABITS_H
#define VGPU_PROGRAM_HABITS_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/cuda_api.h"

/* ---- its streams: used alternately, so that what it launches on them may overlap, or each for a few launches
 * only. Averages over the last 16 launches or so that took the long way. ---- */

struct stream_habits {
    CUstream last;       /* of the last launch; compared only */
    uint32_t changes;    /* how often that was another one, of STREAM_HABITS_ALWAYS */
    uint32_t endings;    /* how often a stream ended */
    uint32_t dependents; /* how often it was a dependent launch */
};

#define STREAM_HABITS_ALWAYS 1024

void stream_habits_launch(struct stream_habits *habits, CUstream stream, bool is_dependent);
void stream_habits_end(struct stream_habits *habits);

/* True while there is a stream's end for every ten launches or so, as where each request has a stream of
 * its own. A measurement ends with its stream, or has one end on each, so batches would cost about as
 * many events as there are launches. */
bool stream_habits_are_short(const struct stream_habits *habits);

/* True while some launches are dependent ones, which overlap their neighbours in the stream. */
bool stream_habits_are_chains(const struct stream_habits *habits);

/* True while launches go to several streams in turn. */
bool stream_habits_overlap(const struct stream_habits *habits);

/* ---- whether what is on the GPU waits for what would be launched next: a stream that waits for a value, a
 * kernel that looks at memory. Then holding launches until the GPU is through with more holds both.
 *
 * Told by what happened: a launch was held for long and in vain, and soon after it went something came
 * back. From then on launches are held for a moment only where the GPU has something of ours that lasts
 * longer than foreseen, for a second at first and twice as long each time; all is debt. ---- */

#define INTERLOCK_SOON_NS 5000000 /* after the launch went: it was waited for */
#define INTERLOCK_FIRST_NS 1000000000
#define INTERLOCK_MOST_NS 64000000000

struct interlock {
    int64_t released_ns; /* when a launch went that was held in vain; 0: none since a return */
    int64_t until_ns;
    int64_t span_ns;
};

/* A launch goes that was held in vain, for the GPU or while that had something for far too long. */
void interlock_release(struct interlock *interlock, int64_t now_ns);

/* Something came back from the GPU. Returns how long after the launch went if it waited for that, else
 * -1. */
int64_t interlock_return(struct interlock *interlock, int64_t now_ns);

/* True while what is on the GPU may wait for what would be launched next. */
bool interlock_is_on(const struct interlock *interlock, int64_t now_ns);

#endif
