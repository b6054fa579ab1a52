/*
 * Stream captures: work put onto a capturing stream becomes nodes of a graph. Each stream of a
 * capture (a branch) has a set of nodes, its dependencies: the next node of the stream depends on
 * all of them and then takes their place. An event recorded in a capture keeps the set of its
 * stream; a stream that waits for it adds that set to its own, and joins the capture if it was in
 * none. At the end everything must have been joined to the stream where the capture began.
 *
 * As documented for the real driver, calls that could touch other streams' work are refused next to
 * a capture, by its mode, and spoil it; the legacy stream of a context in which a blocking stream
 * is captured can be used for nothing, which `capture_implicit` in its place of a capture tells.
 *
 * One mutex guards all captures.
 */
#ifndef VGPU_SIM_CAPTURE_H
#define VGPU_SIM_CAPTURE_H

#include "graph.h"

struct capture_set {
    CUgraphNode *nodes;
    CUgraphEdgeData *data;
    size_t count;
};

struct capture_branch {
    struct CUstream_st *stream;
    struct capture_set set;
};

/* An event that was recorded in the capture. */
struct capture_event {
    struct CUevent_st *event;
    struct capture_set set;
};

struct capture {
    unsigned long long id;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool spoilt;
    bool owns_graph; /* not one that the program gave */
    struct CUgraph_st *graph;
    struct capture_branch *branches; /* the first is where it began */
    size_t branch_count;
    struct capture_event *events;
    size_t event_count;
    struct capture *next;
};

extern struct capture capture_implicit;
extern pthread_mutex_t captures_mutex;

/* A launch of an executable graph becomes a child graph. */
CUresult capture_add_launch(struct CUstream_st *stream, const struct CUgraph_st *graph);

/* capture_set.c */
bool capture_set_add(struct capture_set *set, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                     size_t count);
void capture_set_clear(struct capture_set *set);
/* Whether every node of `set` is one of `ends` or comes before one. */
bool capture_set_reaches(struct CUgraph_st *graph, const struct capture_set *ends,
                         const struct capture_set *set);

/* capture.c, under the mutex */
struct capture_branch *capture_branch_locked(struct capture *capture,
                                             const struct CUstream_st *stream);
struct capture_branch *capture_join_locked(struct capture *capture, struct CUstream_st *stream);
void capture_refresh_legacy_locked(struct CUctx_st *context);
/* Puts a capture among those under way, with its first branch, or takes it out and frees it. */
bool capture_begin_locked(struct capture *capture, struct CUstream_st *stream);
void capture_end_locked(struct capture *capture);
void capture_spoil_blocking_locked(const struct CUctx_st *context);
/* The branch of a stream that may take in more, or NULL and why not. */
struct capture_branch *capture_usable_branch_locked(struct CUstream_st *stream, CUresult *why);

#endif
