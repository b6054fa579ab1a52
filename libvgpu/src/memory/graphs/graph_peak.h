/* How much memory a graph may have of each GPU at one time, by its allocation and free nodes and the
 * order that its edges force; child graphs included.
 *
 * Two allocations share memory only where one is freed before the other is made in every order that
 * the edges allow. So what is told is the sum over places, each of which holds one allocation after
 * the other and is as large as the largest of them. That is exact for chains, and never below what
 * can be alive at once, since of those alive each has a place of its own; which allocation goes to
 * which place is chosen greedily, so that with branches it may be more. What the graph does not free
 * outlives its launch and has a place of its own.
 *
 * The bodies of conditional nodes may hold no allocations (CUDA programming guide, graphs).
 *
 * Nothing is kept between calls, so there is nothing to synchronise; a program that changes a graph
 * while it is made executable breaks the driver's own rule. */
#ifndef VGPU_GRAPH_PEAK_H
#define VGPU_GRAPH_PEAK_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/cuda_api.h"

#define GRAPH_MOST_DEVICES 16

struct graph_peak {
    int count;
    uint64_t local_bytes_a_thread; /* the most that a kernel of it needs; local_memory.h */
    bool has_collective;           /* it has such a kernel (collective.h) */
    struct {
        CUdevice ordinal;
        uint64_t shared_bytes;  /* places for what the graph frees itself */
        uint64_t lasting_bytes; /* what it leaves allocated */
    } each[GRAPH_MOST_DEVICES]; /* in ascending order */
};

/* What the driver answers where it does not tell. Under capture_pause(). */
CUresult graph_peak_of(CUgraph graph, struct graph_peak *peak);

#endif
