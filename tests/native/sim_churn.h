/* A client of the simulated GPU that makes random calls: what its files share. sim_churn.c picks
 * the calls, sim_churn_memory.c takes and gives memory, sim_churn_graphs.c makes graphs. */
#ifndef VGPU_TEST_SIM_CHURN_H
#define VGPU_TEST_SIM_CHURN_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "vgpu/cuda_array.h"
#include "vgpu/cuda_calls.h"
#include "vgpu/cuda_graph.h"
#include "vgpu/cuda_vmm.h"

#include "spin_kernel.h"

#define STREAMS 3
#define LONGEST_NS 2000

enum kind {
    NOTHING,
    PLAIN,
    MANAGED,
    ASYNC,
    FROM_POOL,
    MAPPED, /* physical memory at two addresses */
    ARRAY,
    MIPMAP,
    EXPORTED, /* to processes that never open it */
    KINDS
};

/* Memory of one kind. All work with it is on one stream: a device must not use memory that another
 * stream may have freed. */
struct piece {
    CUstream stream;
    CUdeviceptr address, second;
    size_t bytes;
    enum kind kind;
    CUmemGenericAllocationHandle physical;
    CUarray array;
    CUmipmappedArray mipmap;
};

struct churn {
    unsigned int seed;
    bool alone; /* no other thread makes calls that a capture would refuse */
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    CUstream streams[STREAMS];
    CUevent event;
    CUmemoryPool pool;
};

struct graphs {
    CUgraph spins;          /* kernels one after the other */
    CUgraphExec spinning;   /* of it */
    CUgraphExec allocating; /* takes memory, fills it and gives it back */
    CUgraphExec captured;   /* the last capture, or NULL */
};

extern const char churn_ptx[];

static inline unsigned int below(struct churn *churn, unsigned int limit)
{
    return (unsigned int)rand_r(&churn->seed) % limit;
}

/* sim_churn_memory.c */
void memory_begin(struct churn *churn);
void memory_end(struct churn *churn);
void memory_take(struct churn *churn, struct piece *piece, CUstream stream);
void memory_give(struct piece *piece);
void memory_touch(struct churn *churn, const struct piece *piece);
void memory_set_pool(struct churn *churn);

/* sim_churn_graphs.c */
void graphs_begin(struct churn *churn, struct graphs *graphs);
void graphs_end(struct graphs *graphs);
void graphs_launch(struct churn *churn, struct graphs *graphs, CUstream stream);
void graphs_update(struct churn *churn, struct graphs *graphs);
void graphs_capture(struct churn *churn, struct graphs *graphs);

#endif
