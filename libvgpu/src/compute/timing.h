/* Measures batches of launches with pairs of events on the program's own stream.
 *
 * A ring of batches, oldest first; the youngest may still be open (its end is not recorded yet).
 * What a batch took is the time from its start, or from the latest end measured so far if that is
 * later, to its own end: so work on several streams is counted once where it overlaps. On an idle
 * GPU the start is there before the first launch is; what the host took between the two is no GPU
 * time and is told apart, as idle_ns. It is that much at most: the host may have been kept from a
 * CPU after the launch had begun. So no more than half of the whole is believed, and nothing
 * where launches return when they are done (CUDA_LAUNCH_BLOCKING).
 *
 * Nothing here sleeps, and nothing touches a stream that is being captured: the caller asks
 * capture_is_active first. Every driver call runs with captures of other threads left alone.
 * Serialised by its caller (throttle.c holds its lock). */
#ifndef VGPU_TIMING_H
#define VGPU_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/estimate.h"
#include "vgpu/cuda_api.h"

#define TIMING_BATCHES 16
#define BATCH_KINDS 8

/* How many launches of one kind a batch holds. */
struct batch_kind {
    uint64_t key;
    uint32_t launches;
};

struct batch {
    CUevent start;
    CUevent end;
    CUcontext context; /* of the events; NULL: there are none */
    CUstream stream;
    int thread;      /* whose per-thread default stream it is; 0 for any other stream */
    bool is_clean;   /* measured while nobody else runs, as far as the arbiter says */
    uint64_t window; /* it was opened in, if it was contended (window.h) */
    int64_t window_end_ns;
    uint64_t grant;     /* the number it was opened under */
    bool ends_behind;   /* it is closed right behind its last launch, by that launch's thread */
    const void *opener; /* thread whose launch began it, while recorded_ns is set */
    const void *ender;  /* thread that ends it */
    int64_t charged_ns;
    int64_t
        overdue_ns; /* charged beyond that, to the virtual time alone, since it lasted so long */
    int64_t opened_ns;
    int64_t recorded_ns; /* the start was, on an idle GPU whose first launch is on its way; or 0 */
    int64_t idle_ns;     /* between its start and its first launch; part of what it took */
    int64_t predicted_end_ns;
    uint32_t launches;
    uint32_t kind_count; /* further kinds are not learned from */
    struct batch_kind kinds[BATCH_KINDS];
};

struct timing {
    struct batch ring[TIMING_BATCHES];
    uint32_t first; /* oldest */
    uint32_t count;
    bool is_open;  /* the youngest takes further launches */
    CUevent cover; /* the latest end measured, on loan from the ring */
    CUcontext cover_context;
};

/* Opens a batch on `stream`: records its start. False when the driver cannot: it is not timed. */
bool timing_open(struct timing *timing, CUstream stream, int64_t now_ns);

/* The launch that opened the open batch on an idle GPU has been handed to the driver. */
void timing_began(struct timing *timing, int64_t now_ns);

/* True while a batch holds launches of that kind. */
bool timing_holds(const struct timing *timing, uint64_t key);

/* Counts launches of a kind in the batch, or takes them out again (negative). */
void timing_count(struct batch *batch, uint64_t key, int64_t launches);

/* The calling thread's number where `stream` means its own default stream, else 0. */
int timing_thread_of(CUstream stream);

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

/* Takes a batch of that context out unmeasured, the open one too; false when there is none left. */
bool timing_take_of_context(struct timing *timing, CUcontext context, struct batch *batch);

/* Forgets the events in a context that is about to end. */
void timing_forget_context(struct timing *timing, CUcontext context);

#endif
