/* Measures batches of launches with pairs of events on the program's own stream.
 *
 * A ring of batches, oldest first; the youngest may still be open (its end is not recorded yet).
 * What a batch took is the time from its start, or from the latest end measured so far if that is
 * later, to its own end: so work on several streams is counted once where it overlaps.
 *
 * Nothing here sleeps, and nothing touches a stream that is being captured: the caller asks
 * capture_is_active first. Every driver call runs with captures of other threads left alone.
 * Serialised by its caller (throttle.c holds its lock). */
#ifndef VGPU_TIMING_H
#define VGPU_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "estimate.h"
#include "vgpu/cuda_api.h"

#define TIMING_BATCHES 16

struct batch {
    CUevent start;
    CUevent end;
    CUcontext context; /* of the events; NULL: there are none */
    CUstream stream;
    int64_t charged_ns;
    int64_t opened_ns;
    int64_t predicted_end_ns;
    uint32_t launches;
    uint64_t key; /* of all its launches, 0 when they differ */
};

struct timing {
    struct batch ring[TIMING_BATCHES];
    uint32_t first; /* oldest */
    uint32_t count;
    bool is_open;   /* the youngest takes further launches */
    CUevent cover;  /* the latest end measured, on loan from the ring */
    CUcontext cover_context;
};

/* Opens a batch on `stream`: records its start. False when the driver cannot: it is not timed. */
bool timing_open(struct timing *timing, CUstream stream, int64_t now_ns);

/* The open batch, or NULL. */
struct batch *timing_open_batch(struct timing *timing);

/* The oldest batch that is closed, or NULL. */
struct batch *timing_oldest(struct timing *timing);

/* Records the end of the open batch. False when the driver cannot: it is dropped. */
bool timing_close(struct timing *timing, int64_t now_ns);

/* Drops the open batch unmeasured. */
void timing_drop_open(struct timing *timing);

/* Takes the oldest closed batch out if the GPU is through with it. Returns 1 with what it took, 0
 * when it still runs (or there is none), -1 when it cannot be told and was dropped. */
int timing_harvest(struct timing *timing, struct batch *batch, int64_t *gpu_ns);

/* Drops what belongs to a context that has ended. Returns the charged time that was dropped. */
int64_t timing_forget_context(struct timing *timing, CUcontext context);

#endif
