/*
 * The timeline of one device: given its state, its queues and a moment, what has been done by then.
 * Pure apart from reading the queues and stamping what is done; the caller owns `state`.
 *
 * Without MPS the device serves one process at a time, in turns of SIM_SLICE_NS while another has
 * work; taking the device from a process that still has work costs SIM_SWITCH_NS. The clients of
 * an MPS server are one such process to the others and run side by side among themselves, each at
 * its percentage of the device, all in proportion slower where the sum is above 100.
 * Within a process each lane is served in order. Of the lanes that have work for the device those
 * of the highest priority share what the process has in equal parts. Transfers share the way to the
 * host, and go on next to everything else.
 */
#ifndef VGPU_SIM_TIMELINE_H
#define VGPU_SIM_TIMELINE_H

#include <stdbool.h>

#include "layout.h"

/* A lane that has, or will have before the end of this advance, something to do. */
struct sim_worker {
    struct sim_client *client;
    struct sim_queue *queue;
    const struct sim_operation *operation; /* at the head, if it can go on now */
    uint64_t tail;
    uint32_t slot;
    uint32_t lane;
    uint32_t rate; /* of the device's time, in parts of `whole` */
    uint32_t whole;
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
