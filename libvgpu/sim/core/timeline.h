/*
 * The timeline of one device: given its state, its queues and a moment, what has been done by then.
 * Pure apart from reading the queues and stamping what is done; the caller owns `state`.
 *
 * Without MPS the device serves one process at a time, in turns of `slice_ns` while another has
 * work; changing the process costs `idle_switch_ns` where the one before has no work left,
 * `switch_ns` where it has, and `preempt_ns` more where a kernel of it is in the midst (all of the
 * device's calibration, machine_api.h). The clients of an MPS server are one such process to the
 * others and run side by side among themselves.
 * Within a process each lane is served in order. Of the lanes that have work for the device those
 * of the highest priority run side by side: each kernel has the part of the device that its blocks
 * fill, and all are in proportion slower where the parts come to more than the whole. So are the
 * clients of an MPS server, of which each has at most its percentage. If what runs side by side needs more
 * memory bandwidth than there is, all that need any are slower in proportion. After the device has run nothing
 * for some time, it runs slower for a while (`clock_ramp_…`). Both lengthen the time that a process has of it.
 * An event takes its time in
 * its lane and during the turn of its process, but no part of the device. Transfers share the way
 * to the host, and go on next to everything else.
 * What reaches a lane that is idle begins `latency_ns` after the call. A dependent launch that is there
 * before the kernel ahead of it ends has begun by then, for up to its `overlap_ns`.
 */
#ifndef VGPU_SIM_TIMELINE_H
#define VGPU_SIM_TIMELINE_H

#include <stdbool.h>

#include "layout.h"

#define SIM_SLOW_ONE (1u << 20)

/* A lane that has, or will have before the end of this advance, something to do. */
struct sim_worker {
    struct sim_client *client;
    struct sim_queue *queue;
    const struct sim_operation *operation; /* at the head, if it can go on now */
    uint64_t tail;
    uint32_t slot;
    uint32_t lane;
    uint64_t rate; /* at which its operation goes on, in parts of `whole` */
    uint64_t whole;
    uint32_t parts; /* of `share_out` that it has of the device's time while it runs */
    uint32_t share_out;
    bool spins; /* it runs, and gets no further */
    uint64_t
        slowdown; /* of SIM_SLOW_ONE: how many times its rate alone would be that, apart from others' parts */
};

struct sim_workers {
    uint32_t count;
    struct sim_worker all[SIM_PROCESS_SLOTS * SIM_LANES];
};

struct sim_timeline {
    struct sim_state *state;
    struct sim_device_header *device; /* for the queues */
    struct sim_workers *workers;      /* to work with; too large for a stack */
    bool stamping;                    /* false in predictions */
};

/* Settles the timeline up to `until_ns`. */
void sim_timeline_advance(struct sim_timeline *timeline, uint64_t until_ns);

/* Returns when the operation at `place` of `slot` will be done if nothing new comes, or a moment
 * before that if it is far away. Leaves `state` advanced: give it a private copy. */
uint64_t sim_timeline_predict(struct sim_timeline *timeline, uint32_t slot, uint64_t place);

#endif
