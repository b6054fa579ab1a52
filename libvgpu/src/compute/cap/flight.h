/* What one device has in flight for this process: charged launches, and the batches that measure
 * them. Every charge moves the container's virtual time and is taken out again, with what is then
 * known of it, when its batch is measured or given up.
 *
 * Launches are measured one and all while prices are unknown, while the virtual time is near its
 * limit, while turns are taken, and while the GPU has more to do than is good to guess: there the
 * batches follow each other without a gap. Else, with the GPU idle between launches, a launch is
 * charged by its kind's price, and a rationed sample (ration.h) says what became of that price; what
 * the kind was charged since its last sample is then corrected by as much.
 *
 * Dependent launches overlap each other on the GPU, and an event between two of them breaks that. So one
 * alone takes longer than in its chain: the prices of a chain of such samples would be more than the time
 * that the chain takes. So in a program that has such launches a sample behind other work is a chain of
 * FLIGHT_CHAIN_LAUNCHES, of which all but the first overlap. Each second one is a launch alone, and tells only that
 * it takes no longer: a chain may have idle time in it. On an idle GPU a launch would not overlap anyway.
 *
 * Threads launch side by side, and an end that one of them records must come behind the launches of the
 * others, or these would run unmeasured. So a batch is not ended while any launch of it is on its way to the
 * driver: charged, but not handed to it yet. Who would end it has it end behind them, and the thread that hands
 * over the last one does so.
 *
 * Serialised by the lock in `struct flight`, which throttle.c holds around every call here; nothing
 * here sleeps. All zero is ready to use. */
#ifndef VGPU_FLIGHT_H
#define VGPU_FLIGHT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/cap/collective_debt.h"
#include "compute/cap/launch.h"
#include "compute/measure/estimate.h"
#include "compute/measure/program_habits.h"
#include "compute/measure/ration.h"
#include "compute/measure/sample_quality.h"
#include "compute/measure/timing.h"
#include "compute/turns/window.h"
#include "slice/waiting.h"

#define FLIGHT_BATCH_NS 2000000        /* of estimated work are measured together */
#define FLIGHT_OVERLAPPING_NS 10000000 /* of virtual time in a burst where streams overlap */
#define FLIGHT_MOST_NS 6000000         /* of it are in flight */
#define FLIGHT_CHAIN_LAUNCHES 64       /* of a sample where launches overlap each other */
#define STALE_AFTER_NS 50000 /* a batch that took this much longer to launch than to run idled */

struct flight {
    uint32_t device; /* of the slice */
    pthread_mutex_t lock;
    struct ticket_lock launches;
    struct timing timing;
    struct estimates estimates;
    struct ration ration;
    struct window window; /* as last looked at */
    uint64_t used_window; /* the last one that something was launched in */
    int64_t in_flight_ns; /* charged and not measured yet */
    int64_t patience_ns; /* the next unmeasured launch waits so long for the one before; 0: least */
    int64_t settled_ns;  /* when something came back from the GPU last */
    int64_t seen_running_ns; /* when the oldest batch was found to run still */
    int64_t doubted_ns;      /* when a sample was far off its price last */
    struct stream_habits streams;
    struct overlap overlap; /* of the batches since a price was learned from such */
    struct interlock interlock;
    struct collective_debt collectives;
    bool bound_next;   /* of samples of launches that overlap, the next is one alone */
    bool is_held;      /* by the cap, until a burst begins */
    bool measure_next; /* the last batch was lost: measure one launch alone */
    bool gave_up;      /* a batch, and none was measured since */
    bool has_pauses;   /* the GPU idled between launches since a batch was full */
    bool is_sparse;    /* the GPU is through with a launch before the next one comes */
    bool is_blind;     /* no measurement has come back for long: do not wait for one */
};

/* True while launches go to several streams in turn, and what they launch may overlap in a batch. */
bool flight_overlaps(const struct flight *flight);

/* By how much the container's virtual time may still move before launches of this process have to wait. */
int64_t flight_left_ns(const struct flight *flight, int64_t now_ns);

/* ---- flight.c: what goes to the GPU ---- */

/* Charges one launch and puts it into a batch on its stream, if it is measured: flight_launched is to be
 * called once the driver has taken it. */
void flight_enlist(struct flight *flight, struct launch *launch, struct estimate *estimate,
                   int64_t now_ns);

/* Puts launches of a kind, charged already, into the open batch, if there is one. */
void flight_count(struct flight *flight, const struct estimate *kind, int64_t gpu_ns,
                  int64_t launches, int64_t now_ns);

/* That launch has been handed to the driver: ends its batch if that ends here. True when the batch
 * goes on: now is the time to prepay. */
bool flight_launched(struct flight *flight, const struct launch *launch, int64_t now_ns);

/* Ends the open batch, or gives it up if the GPU has idled in it. While launches of it are on their way,
 * it stays open, and ends behind them. */
void flight_close(struct flight *flight, int64_t now_ns);

/* A stream is about to end: so does what is measured on it, while the driver knows it. */
void flight_forget_stream(struct flight *flight, CUstream stream, int64_t now_ns);

/* ---- flight_settle.c: what comes back ---- */

/* What has come to pass since the last look: launches that were prepaid, an open batch in which the GPU has
 * idled, batches that must have ended. */
void flight_catch_up(struct flight *flight, int64_t now_ns);

/* Settles every batch that the GPU is through with. */
void flight_harvest(struct flight *flight, int64_t now_ns);

/* Takes a batch out of what is in flight, with what is now known of it. */
void flight_settle(struct flight *flight, const struct batch *batch, bool is_measured,
                   int64_t gpu_ns, int64_t now_ns);

/* True when the open batch has taken longer to launch than to run, since the GPU was last seen with what
 * came before it: the GPU idled in between, and that is no one's GPU time. Next to other streams' work a
 * price that is too low looks the same, and would stay. So there one batch in a row is given up at most. */
bool flight_has_idled(struct flight *flight, int64_t now_ns);

/* Leaves the open batch unmeasured, if there is one; its estimates stand. */
void flight_give_up(struct flight *flight, int64_t now_ns);

/* For how long the GPU has had the oldest batch beyond what was foreseen; 0 or less: it has not. */
int64_t flight_late_ns(struct flight *flight, int64_t now_ns);

/* The oldest batch still runs: charges it for as long as that has lasted by now. */
void flight_charge_overdue(struct flight *flight, int64_t now_ns);

/* Publishes how much work is in flight, for the GPU's utilisation. If `is_settled`, part of what was in
 * flight before ran until now. */
void flight_show(const struct flight *flight, bool is_settled, int64_t now_ns);

/* Settles what is left of a context that is about to end, as estimated. */
void flight_forget(struct flight *flight, CUcontext context, int64_t now_ns);

#endif
