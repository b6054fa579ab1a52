/*
 * A program is what a launch of an executable graph does: the nodes of the graph and of all graphs
 * inside it, in an order that their edges allow, as steps. Neighbouring nodes that need the device
 * are one step with the sum of their costs, and so are neighbouring transfers; bytes that move,
 * host functions and events are steps between them. A graph of kernels is one step, so that
 * launching it costs one submission.
 *
 * Bytes move when the graph is launched, as those of a copy outside a graph do (copy.c), unless a
 * host function, a wait for an event or a memory operation comes before them in the graph, which
 * could change or delay them: then they move when the stream gets there.
 *
 * A program does not change. Launches under way hold references to it, so that changing or
 * destroying the executable graph does not touch them.
 */
#ifndef VGPU_SIM_GRAPH_PROGRAM_H
#define VGPU_SIM_GRAPH_PROGRAM_H

#include "graph.h"

struct graph_program;

/* NULL: no memory. The graph has no cycles. */
struct graph_program *graph_program_make(struct CUgraph_st *graph);
void graph_program_drop(struct graph_program *program);
/* Whether it is more than device time, so that two launches must not overlap. */
bool graph_program_is_ordered(const struct graph_program *program);
/* `frees_first`: gives back what the last launch left allocated. */
CUresult graph_program_launch(struct graph_program *program, struct CUstream_st *stream,
                              bool frees_first);
/* Takes the device memory of the next launch in the stream ahead of it. */
void graph_program_prepare(const struct graph_program *program, unsigned long long stream_id);

#endif
