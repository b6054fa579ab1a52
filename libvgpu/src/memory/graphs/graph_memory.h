/* What executable graphs may take from the graph memory of their GPUs when they are uploaded or
 * launched: the most that their allocation nodes may have at one time (graph_peak.h), noted at
 * instantiation, reserved around the call and then corrected to what the driver says it keeps
 * (pool.h). That is a bound for the next call, too; a graph that the driver gave more than was
 * reserved asks for as much from then on.
 * A graph that goes again into the stream where it ran before takes nothing more as long as no
 * other was given its memory meanwhile, be its last run over or not: so a graph in use goes on when
 * the slice is full.
 *
 * A table under one mutex, not looked at while no graph with such nodes exists. A forked child
 * starts without. */
#ifndef VGPU_GRAPH_MEMORY_H
#define VGPU_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/graphs/graph_peak.h"
#include "vgpu/cuda_api.h"

struct pool;

/* By GPU, in ascending order. */
struct graph_need {
    int count;
    uint64_t local_bytes_a_thread; /* the most that a kernel of it needs; local_memory.h */
    bool has_collective;           /* it has such a kernel (collective.h) */
    uint64_t stream; /* where it is to run, by its lasting number; 0: that is not known */
    struct {
        CUdevice ordinal;
        uint64_t bytes;
        uint64_t stream, epoch; /* where and when (pool.h) it ran last */
        struct pool *pool;      /* from begin to end */
        uint64_t begun_bytes;
    } each[GRAPH_MOST_DEVICES];
};

/* What the allocation nodes of a graph may have at one time; what the driver answers where it does not tell them. */
CUresult graph_need_of(CUgraph graph, struct graph_need *need);

/* Remembers, and forgets, what an executable graph needs. */
void graph_memory_keep(CUgraphExec exec, const struct graph_need *need);
void graph_memory_forget(CUgraphExec exec);

/* False, without a look at the table, when no graph needs memory. */
bool graph_memory_find(CUgraphExec exec, struct graph_need *need);

/* Around a call that may take that memory. CUDA_SUCCESS, or what the hook returns instead. The end
 * sets the bytes to what was seen, and sets where and when. */
CUresult graph_memory_begin(struct graph_need *need);
void graph_memory_end(struct graph_need *need);

/* The call of a launch or upload, with that around it. */
CUresult graph_memory_call(CUgraphExec exec, CUstream stream,
                           CUresult (*call)(CUgraphExec, CUstream));

/* For fork.c. */
void graph_memory_after_fork(void);

#endif
