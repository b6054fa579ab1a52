/*
 * The timeline of one device: given its state, its queues and a moment, what has been done by then.
 * Pure apart from reading the queues and stamping what is done; the caller owns `state`.
 *
 * Without MPS the device serves one process at a time, in turns of SIM_SLICE_NS while another has
 * work; taking the device from a process that still has work costs SIM_SWITCH_NS. The clients of
 * an MPS server are one such process to the others and run side by side among themselves, each at
 * its percentage of the device, all in proportion slower where the sum is above 100.
 * A queue is served in order, whatever the streams.
 */
#ifndef VGPU_SIM_TIMELINE_H
#define VGPU_SIM_TIMELINE_H

#include <stdbool.h>

#include "layout.h"

struct sim_timeline {
    struct sim_state *state;
    struct sim_device_header *device; /* for the queues */
    bool stamping;                    /* false in predictions */
};

/* Settles the timeline up to `until_ns`. */
void sim_timeline_advance(struct sim_timeline *timeline, uint64_t until_ns);

/* Returns when `slot` will have done its operation number `sequence` if nothing new comes, or a
 * moment before that if it is far away. Leaves `state` advanced: give it a private copy. */
uint64_t sim_timeline_predict(struct sim_timeline *timeline, uint32_t slot, uint64_t sequence);

#endif
