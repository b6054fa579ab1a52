/* A batch of launches and the events that measure it: one at its start, and one at its end on each
 * stream that it has launches on. The events stay with the batch's place for the next round.
 *
 * What asks the driver of events or captures here runs between batch_visit and batch_leave. Serialised by
 * its caller. */
#ifndef VGPU_BATCH_H
#define VGPU_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/capture.h"
#include "vgpu/cuda_api.h"

#define BATCH_NS_PER_MS 1000000.0f
#define BATCH_KINDS 8
#define BATCH_STREAMS 8

/* How many launches of one kind a batch holds, and what each was charged. */
struct batch_kind {
    uint64_t key;
    int64_t price_ns;
    uint32_t launches;
};

struct batch {
    CUevent start;
    CUevent ends[BATCH_STREAMS];     /* NULL: not made yet */
    CUcontext context;               /* of the events; NULL: there are none */
    CUstream streams[BATCH_STREAMS]; /* that it has launches on, the one of its start first */
    uint32_t stream_count;
    bool is_cut;   /* atomic: one of them may have ended, so none is named to the driver any more */
    int thread;    /* whose per-thread default stream it is; 0 for any other stream */
    bool is_clean; /* measured while nobody else runs, as far as the arbiter says */
    uint64_t window; /* it was opened in, if it was contended (window.h) */
    int64_t window_end_ns;
    uint64_t grant;        /* the number it was opened under */
    bool is_sample;        /* one launch that stands for others, charged by price … */
    int64_t speaks_for_ns; /* … of so much GPU time */
    bool ends_behind;      /* it is closed by who hands over the last of it that is on its way */
    uint64_t id;           /* of no other batch of the ring */
    uint32_t coming;       /* launches of it on their way to the driver (flight.h) */
    int64_t counted_ns;    /* of the time since its start, with batches that ended before */
    bool is_beside;        /* on another stream */
    bool is_shared;        /* some of its time is that of other batches, too */
    int64_t charged_ns;
    int64_t parts_ns; /* of that, to parts of collectives */
    int64_t
        overdue_ns; /* charged beyond that, to the virtual time alone, since it lasted so long */
    int64_t opened_ns;
    int64_t recorded_ns; /* the start was, on an idle GPU whose first launch is on its way; or 0 */
    int64_t start_ns;    /* the host's time when its start was recorded */
    int64_t
        launched_ns; /* and when the first launch of it had been handed to the driver; 0: none yet */
    bool is_behind;  /* its start came behind other work */
    bool is_anchor;  /* the GPU came to its start when the host's time was start_ns */
    int64_t idle_ns; /* between its start and its first launch; part of what it took */
    int64_t predicted_end_ns;
    uint32_t launches;
    uint32_t least_launches; /* that it has before it ends by itself */
    bool is_bound;           /* one that overlaps others, measured alone: it takes no longer */
    uint32_t kind_count;     /* further kinds are not learned from */
    struct batch_kind kinds[BATCH_KINDS];
};

/* Nothing is in it yet, and its start is on that stream. Who opens it says the rest. */
void batch_begin(struct batch *batch, CUstream stream, int64_t now_ns);

/* Counts launches of a kind in the batch, at that price each. */
void batch_count(struct batch *batch, uint64_t key, int64_t price_ns, int64_t launches);

/* The calling thread's number where `stream` means its own default stream, else 0. */
int batch_thread_of(CUstream stream);

/* True when launches on that stream are measured with the batch. */
bool batch_is_on(const struct batch *batch, CUstream stream);

/* True where launches on a further stream could be measured with the batch. */
bool batch_can_join(const struct batch *batch, CUstream stream);

/* ---- the driver's part ---- */

/* Around our own driver calls: in the batch's context, whatever the calling thread's is, and
 * leaving captures alone. */
struct batch_visit {
    struct capture_pause pause;
    bool is_pushed;
};
struct batch_visit batch_visit(CUcontext context);
void batch_leave(struct batch_visit visit);

/* Gives the batch events of `context`, the current one. */
bool batch_prepare(struct batch *batch, CUcontext context);

/* Gives it an event for the end on a further stream. */
bool batch_prepare_end(struct batch *batch, uint32_t index);

/* Asked of the driver for every event, whatever the hooks of capture have counted: one recorded in
 * a capture would become part of the program's graph, and one on a default stream next to a capture may
 * spoil it. */
bool batch_is_captured(CUstream stream);

/* Records the end on every stream; false when the driver cannot. */
bool batch_record_ends(const struct batch *batch);

/* What the driver says of the ends: one that is not ready counts. */
CUresult batch_ask(const struct batch *batch);

/* Returns the time from `since` to the last of the ends, and which that is; negative: not to be
 * told. */
float batch_last_end_ms(const struct batch *batch, CUevent since, uint32_t *last);

/* True where both events have passed, and `later` after the other one; tells by how much. */
bool batch_is_later(CUevent event, CUevent later, int64_t *by_ns);

/* Measures what a pair of events costs the GPU, on a stream that is idle: a few microseconds.
 * Returns 0 where somebody else keeps the GPU. */
int64_t batch_pair_ns(const struct batch *batch, CUstream stream);

#endif
