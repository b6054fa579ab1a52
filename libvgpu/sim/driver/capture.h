/* A stream capture under way, and the graph it fills. */
#ifndef VGPU_SIM_CAPTURE_H
#define VGPU_SIM_CAPTURE_H

#include "driver.h"

struct capture {
    unsigned long long id;
    struct CUstream_st *origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool spoilt;
    struct CUgraph_st *graph;
    struct CUstream_st **joined; /* other streams drawn in */
    size_t joined_count;
    struct capture *next;
};

struct CUgraph_st {
    uint64_t magic;
    struct graph_node *first;
    struct graph_node **last;
    size_t count;
};

struct CUgraph_st *graph_new(void);
void graph_delete(struct CUgraph_st *graph);
struct graph_node *graph_append(struct CUgraph_st *graph, const struct graph_node *node);

#endif
