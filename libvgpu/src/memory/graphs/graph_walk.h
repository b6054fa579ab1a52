/* The nodes of one graph in an order that its edges allow, for graph_peak.c: which free node ends
 * which allocation, and labels that are handed on along the edges. On the stack of one thread, with
 * one mapping behind it (the hook may run inside the program's own allocator). */
#ifndef VGPU_GRAPH_WALK_H
#define VGPU_GRAPH_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vgpu/cuda_api.h"

#define GRAPH_ROWS 32 /* of a label */
#define GRAPH_NO_NODE UINT32_MAX

struct place;

struct graph_walk_node {
    CUgraphNode handle;
    CUgraphNodeType type;
    CUdevice ordinal;         /* of an allocation, like bytes and freed_by */
    uint64_t bytes;           /* rounded as it is charged */
    CUdeviceptr address;      /* of allocations and frees */
    uint32_t freed_by;        /* by a node of this graph, or GRAPH_NO_NODE */
    uint32_t waits_for;       /* so many that are not in the order yet */
    uint32_t first, leads_to; /* its edges: where they begin, how many */
    struct place *place;      /* of a free: what it leaves. The caller's */
};

struct graph_walk {
    uint32_t count; /* 0: there is nothing that holds memory, and nothing to end */
    struct graph_walk_node *nodes;
    uint32_t *order, *targets;
    uint32_t (*labels)[GRAPH_ROWS]; /* at first 0 */
    void *mapping;
    size_t mapped_bytes;
    uint64_t local_bytes_a_thread; /* the most that a kernel needs, child graphs' not counted */
    bool has_collective;           /* a kernel is part of one (collective.h); the same */
};

CUresult graph_walk_begin(struct graph_walk *walk, CUgraph graph);
void graph_walk_end(struct graph_walk *walk);

/* Raises the labels of the nodes behind one to its own. */
void graph_walk_pass_on(struct graph_walk *walk, uint32_t node);

#endif
