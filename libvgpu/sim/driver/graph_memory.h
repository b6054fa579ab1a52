/*
 * Memory of graphs. An allocation node has its address from the moment it is made, and the map of
 * allocations holds that address as long as a node or a program knows it. Device memory is taken
 * for it at each launch, out of one pool a device that keeps what it has until
 * cuDeviceGraphMemTrim.
 *
 * What a launch allocates and frees itself is its footprint. The memory for it, a grant, is an
 * executable graph's once, in whatever stream it is launched or uploaded, and stays used when the
 * launches are over. An executable graph without one shares that of the last launch or upload in its
 * stream, which becomes its own; what no launch under way uses it takes away from others, and only
 * then more of the device. All this is what an H100 showed (benchmarks/results). What a launch leaves
 * allocated is live until it is freed: by cuMemFree(Async), by a free node of another graph,
 * or before the next launch where that was asked for.
 *
 * One mutex guards all of it; it comes before memory_mutex, and is held over charging the device.
 */
#ifndef VGPU_SIM_GRAPH_MEMORY_H
#define VGPU_SIM_GRAPH_MEMORY_H

#include "driver.h"

struct graph_allocation;
struct graph_grant;

/* What the launches of an executable graph do to graph memory. */
struct graph_memory_plan {
    struct graph_allocation **taken; /* and left allocated */
    struct graph_allocation **given; /* that another graph took */
    size_t taken_count, given_count;
    uint64_t now_bytes[SIM_MAX_GPUS]; /* while the plan is made */
    uint64_t footprint_bytes[SIM_MAX_GPUS];
    unsigned long long owner; /* the executable graph's number */
    bool any;
};

/* The grants that a launch uses. */
struct graph_memory_lease {
    struct graph_grant *grants[SIM_MAX_GPUS];
};

CUresult graph_memory_create(struct CUctx_st *context, uint64_t bytes, unsigned long long graph_id,
                             struct graph_allocation **allocation, CUdeviceptr *address);
void graph_memory_hold(struct graph_allocation *allocation);
void graph_memory_drop(struct graph_allocation *allocation);
/* Takes a reference to the allocation that a new free node of a graph frees, or tells why not. */
CUresult graph_memory_claim(uint64_t address, unsigned long long graph_id,
                            struct graph_allocation **allocation);
/* The free node never came to stand in the graph; its reference is dropped with its work. */
void graph_memory_unclaim(struct graph_allocation *allocation, unsigned long long graph_id);

/* The pool of a device, under the mutex until it is unlocked. */
struct CUmemPoolHandle_st *graph_memory_lock(struct driver_device *device);
void graph_memory_unlock(void);
/* Has what no launch under way uses count as unused. */
void graph_memory_leave_idle_locked(struct driver_device *device);

/* A plan is made of the memory nodes in the order in which they run. */
bool graph_memory_plan_add(struct graph_memory_plan *plan, const struct graph_node *node);
void graph_memory_plan_clear(struct graph_memory_plan *plan);
CUresult graph_memory_begin(const struct graph_memory_plan *plan, unsigned long long stream_id,
                            bool frees_first, struct graph_memory_lease *lease);
void graph_memory_end(const struct graph_memory_lease *lease);
/* Takes the device memory of a later launch in the stream ahead of it, as far as there is. */
void graph_memory_prepare(const struct graph_memory_plan *plan, unsigned long long stream_id);

#endif
