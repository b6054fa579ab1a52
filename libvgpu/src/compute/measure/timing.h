/* Measures batches of launches with pairs of events on the program's own stream.
 *
 * A ring of batches, oldest first; the youngest may still be open (its end is not recorded yet).
 * A batch may span several streams, and has an end on each. What it took is the time from its start to
 * the last of its own ends, less what of that has been counted with other batches: so work on several
 * streams is counted once where it overlaps, in whatever order batches end.
 *
 * On an idle GPU the start is there before the first launch is; what the host took between the two
 * is no GPU time and is told apart, as idle_ns. It is that much at most: the host may have been kept
 * from a CPU after the launch had begun. So of a launch that took the host twice what one takes at
 * least no more than half of the whole is believed, and nothing where launches return when they are
 * done (CUDA_LAUNCH_BLOCKING). What the events themselves take
 * of the GPU's time is ours and not the program's: it is measured once, around nothing, and taken
 * off.
 *
 * Nothing here sleeps, and nothing touches a stream that is being captured: the caller asks
 * capture_is_active first. Every driver call runs with captures of other threads left alone.
 * Serialised by its caller (throttle.c holds its lock). */
#ifndef VGPU_TIMING_H
#define VGPU_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/measure/batch.h"
#include "compute/measure/estimate.h"
#include "compute/measure/gpu_clock.h"
#include "vgpu/cuda_api.h"

#define TIMING_BATCHES 16

struct timing {
    struct batch ring[TIMING_BATCHES];
    uint32_t first; /* oldest */
    uint32_t count;
    uint64_t last_id; /* of a batch */
    bool is_open;     /* the youngest takes further launches */
    int64_t pair_ns;  /* what a pair of events around nothing tells; 0: not measured yet */
    uint32_t pair_tries;
    int64_t least_idle_ns;   /* of those so far; 0: none yet */
    int64_t least_record_ns; /* likewise, that the host took for a start on an idle GPU */
    struct gpu_clock clock;  /* anchored by starts on an idle GPU */
    CUcontext
        uncertain; /* atomic: a batch of it came behind other work, with no anchor near; NULL: none */
};

/* Opens a batch on `stream`: records its start. False when the driver cannot: it is not timed. */
bool timing_open(struct timing *timing, CUstream stream, int64_t now_ns);

/* That stream is through with all that the program launched: takes an anchor there and measures the pair, if a
 * batch lacked either. Where launches always come behind transfers, no batch is opened on an idle GPU. */
void timing_calibrate(struct timing *timing, CUstream stream);

/* Takes a further stream into the open batch. False when it cannot: the batch is to be closed. */
bool timing_join(struct timing *timing, CUstream stream);

/* The launch that opened the open batch on an idle GPU has been handed to the driver. */
void timing_began(struct timing *timing, int64_t now_ns);

/* True where that took the host longer than launches take it: how long the GPU idled is not known. */
bool timing_was_slow(const struct timing *timing, const struct batch *batch);

/* True while a batch holds launches of that kind. */
bool timing_holds(const struct timing *timing, uint64_t key);

/* The open batch, or NULL. */
struct batch *timing_open_batch(struct timing *timing);

/* The oldest batch that is closed, or NULL. */
struct batch *timing_oldest(struct timing *timing);

/* The youngest batch that is closed, or NULL. */
struct batch *timing_last_closed(struct timing *timing);

/* Records the end of the open batch. False when the driver cannot: it is dropped. */
bool timing_close(struct timing *timing, int64_t now_ns);

/* The GPU goes on to the closed batches at `from_ns` at the earliest: moves their predicted ends. */
void timing_delay(struct timing *timing, int64_t from_ns);

/* A stream is about to end, and the caller's lock cannot be had: no batch that is open names a stream to the driver any
 * more. */
void timing_cut(struct timing *timing);

/* Drops the open batch unmeasured. */
void timing_drop_open(struct timing *timing);

/* Takes the oldest closed batch out if the GPU is through with it. Returns 1 with what it took, 0
 * when it still runs (or there is none), -1 when it cannot be told and was dropped. */
int timing_harvest(struct timing *timing, struct batch *batch, int64_t *gpu_ns);

/* Takes a batch of that context out unmeasured, the open one too; false when there is none left. */
bool timing_take_of_context(struct timing *timing, CUcontext context, struct batch *batch);

/* Forgets the events in a context that is about to end. */
void timing_forget_context(struct timing *timing, CUcontext context);

#endif
