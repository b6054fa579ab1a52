/*
 * Pieces of work as graphs and captures keep them, and what a stream does with them while it is
 * captured.
 */
#ifndef VGPU_SIM_WORK_H
#define VGPU_SIM_WORK_H

#include "driver.h"

/* capture.c */
struct copy_rows {
    uint64_t rows, slices;
    uint64_t target_pitch_bytes, target_slice_bytes;
    uint64_t source_pitch_bytes, source_slice_bytes;
};
/* Where a node stands in its graph; graph.c and graph_edges.c keep it. */
struct graph_links {
    uint64_t magic;
    unsigned long long id;          /* of this process's nodes and graphs, never used twice */
    unsigned long long original_id; /* of the node that this one was copied from */
    struct CUgraph_st *graph;
    struct graph_node *next, *previous;
    struct graph_edge *dependencies, *dependents;
    size_t dependency_count, dependent_count;
    uint64_t mark; /* scratch of walks over the graph */
    size_t remaining;
    struct graph_node *pair;
};
struct launch;
/* One piece of work. Whoever captures work fills in the first part; see graph.h for the rest. */
struct graph_node {
    CUgraphNodeType type;
    uint64_t cost_ns;
    uint32_t kernels;
    void (*run)(const struct graph_node *node); /* the part that moves bytes, at each launch */
    CUdeviceptr target, source;
    uint64_t bytes;       /* of a copy or fill: of each row */
    struct copy_rows box; /* and how its rows lie */
    unsigned int value, value_bytes;
    struct CUfunc_st *function;
    const struct launch *launch; /* of `function`, read while the node is made */

    uint32_t kind;  /* SIM_OPERATION_... of its device time */
    bool disabled;  /* in an executable graph */
    bool dependent; /* a captured launch that may begin while the kernel before it ends */
    struct CUctx_st *context;
    union {
        CUDA_KERNEL_NODE_PARAMS kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        CUevent event;
        struct CUgraph_st *child;
        CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
        CUDA_CONDITIONAL_NODE_PARAMS conditional;
        CUDA_MEM_ALLOC_NODE_PARAMS allocation;
    } params;
    struct graph_allocation *allocation; /* of memory nodes */
    unsigned int condition;              /* what the handle of a conditional node is worth */
    void *owned;                         /* what `params` points to; begins with pointers */
    size_t owned_bytes, owned_pointers;
    struct graph_attributes *attributes;
    struct graph_links links;
};
/* The capture that a stream is in: it changes under the mutex of captures, and calls look at it
 * without, to pass on what is captured; those functions look again. */
static inline struct capture *stream_capture(const struct CUstream_st *stream)
{
    return __atomic_load_n(&stream->capture, __ATOMIC_RELAXED);
}
/* Adds to the capture of a stream. Returns CUDA_SUCCESS, or why that cannot be captured. */
CUresult capture_add(struct CUstream_st *stream, const struct graph_node *node);
/* Refuses calls that may not be made during a capture; spoils that capture, as the driver does. */
CUresult capture_check_unsafe(void);
CUresult capture_refuse(struct CUstream_st *stream);
CUresult capture_record_event(struct CUevent_st *event, struct CUstream_st *stream);
CUresult capture_wait_event(struct CUstream_st *stream, struct CUevent_st *event);
/* Host functions and stream-ordered memory inside a capture become nodes of its graph. */
CUresult capture_add_batch(struct CUstream_st *stream, CUstreamBatchMemOpParams *operations,
                           unsigned int count);
CUresult capture_add_host(struct CUstream_st *stream, CUhostFn function, void *argument);
CUresult capture_add_allocation(struct CUstream_st *stream, struct CUmemPoolHandle_st *pool,
                                uint64_t bytes, CUdeviceptr *address);
CUresult capture_add_free(struct CUstream_st *stream, CUdeviceptr address);
/* With CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL: nodes that reach out of the graph. */
CUresult capture_add_event_record(struct CUstream_st *stream, struct CUevent_st *event);
CUresult capture_add_event_wait(struct CUstream_st *stream, struct CUevent_st *event);
/* Takes a stream that is destroyed out of its capture. The capture ends with the stream where it
 * began, and is spoilt by the loss of one whose work nobody waits for yet. */
void capture_abandon(struct CUstream_st *stream);

/* graph_memory.c: whether an allocation of the map belongs to a graph, and giving back one that a
 * launch left allocated */
bool graph_memory_owns(const struct allocation *allocation);
CUresult graph_memory_free(uint64_t address);

#endif
