/* Executable graphs: a copy of a graph, whose nodes' works may be exchanged, and the program made
 * of it when it is next launched. */
#ifndef VGPU_SIM_GRAPH_EXEC_H
#define VGPU_SIM_GRAPH_EXEC_H

#include "graph_program.h"

struct CUgraphExec_st {
    uint64_t magic;
    struct CUgraph_st *graph;  /* the copy */
    struct CUgraph_st *source; /* one with memory nodes, which may have one executable graph only */
    uint64_t flags;
    struct graph_program *program; /* NULL: something changed since */
    CUevent done;                  /* recorded behind launches whose order matters */
    unsigned long long stream_id;  /* where it was recorded */
};

bool graph_exec_is_exec(const struct CUgraphExec_st *exec);
/* The node of the executable graph that was made of a node, NULL if there is none. */
struct graph_node *graph_exec_find(struct CUgraphExec_st *exec, CUgraphNode handle);
/* Has the program made again. */
void graph_exec_changed(struct CUgraphExec_st *exec);

#endif
