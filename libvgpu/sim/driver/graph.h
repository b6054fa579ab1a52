/*
 * Graphs, inside. A graph is a list of nodes in the order of their making, each with its edges.
 * What a node does is a `struct graph_node` without links, a "work", made by the graph_describe_*
 * functions: adding a node attaches a work to a graph, setting its parameters exchanges the work,
 * and an executable graph is a copy of the graph whose works may be exchanged too.
 *
 * As documented for the real driver, a graph and an executable graph are not to be used by two
 * threads at once; nothing here is locked but graph memory, user objects and captures.
 */
#ifndef VGPU_SIM_GRAPH_H
#define VGPU_SIM_GRAPH_H

#include "driver.h"

#define GRAPH_ATTRIBUTE_COUNT 20 /* of launch attributes, by number */

struct graph_edge {
    struct graph_node *node;
    CUgraphEdgeData data;
};

struct graph_attributes {
    CUlaunchAttributeValue values[GRAPH_ATTRIBUTE_COUNT];
};

/* A conditional handle. */
struct graph_condition {
    unsigned long long id;
    unsigned int default_value;
    unsigned int flags;
    bool used;
    struct graph_condition *next;
};

struct user_reference {
    struct CUuserObject_st *object;
    unsigned int count;
    struct user_reference *next;
};

struct CUgraph_st {
    uint64_t magic;
    unsigned long long id;
    unsigned long long original_id; /* of the graph that this one was cloned from */
    struct graph_node *first;
    struct graph_node **last;
    size_t count;
    struct graph_node *owner;         /* the child graph or conditional node that it belongs to */
    bool is_body;                     /* of a conditional node */
    bool capturing;                   /* a capture puts nodes into it */
    struct CUgraphExec_st *only_exec; /* while it has memory nodes and is instantiated */
    struct graph_condition *conditions;
    struct user_reference *objects;
    uint64_t mark;
};

/* ---- graph.c ------------------------------------------------------------------------------- */

struct CUgraph_st *graph_new(void);
void graph_delete(struct CUgraph_st *graph);
/* A copy with child graphs, edges and references to user objects; NULL: no memory. */
struct CUgraph_st *graph_copy(const struct CUgraph_st *graph);
bool graph_is_graph(const struct CUgraph_st *graph);
/* The node behind a handle, NULL if it is none. */
struct graph_node *graph_node_of(CUgraphNode handle);
struct graph_node *graph_node_of_type(CUgraphNode handle, CUgraphNodeType type);
/* Whether the graph or one inside it has nodes of the type. */
bool graph_contains(const struct CUgraph_st *graph, CUgraphNodeType type);
bool graph_has_memory_nodes(const struct CUgraph_st *graph);
/* Adds a work as a node without dependencies. The work belongs to the graph afterwards. */
struct graph_node *graph_append(struct CUgraph_st *graph, const struct graph_node *work);
/* The same with dependencies, after checking everything; gives the work up if it fails. */
CUresult graph_attach(CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                      size_t count, struct graph_node *work, CUgraphNode *node);
/* The same with a work that was described; answers what its description did if it failed. */
CUresult graph_add(CUgraph graph, const CUgraphNode *dependencies, size_t count, CUresult described,
                   struct graph_node *work, CUgraphNode *node);
/* Copies what is in the `params` of a node of the type. */
CUresult graph_tell(CUgraphNode handle, CUgraphNodeType type, void *params, size_t bytes);

/* ---- graph_work.c -------------------------------------------------------------------------- */

void graph_work_release(struct graph_node *work);
/* A copy that owns what it points to; false: no memory. */
bool graph_work_copy(struct graph_node *copy, const struct graph_node *work);
/* Exchanges what a node does. */
void graph_work_replace(struct graph_node *node, struct graph_node *work);
/* Fills in what a capture left out of the description of a kernel, a copy or a fill. */
CUresult graph_work_complete(struct graph_node *work, struct CUctx_st *context);

/* ---- graph_edges.c ------------------------------------------------------------------------- */

CUresult graph_check_edge(const struct graph_node *from, const struct graph_node *to_or_null,
                          const CUgraphEdgeData *data);
bool graph_link(struct graph_node *from, struct graph_node *to, const CUgraphEdgeData *data);
void graph_unlink_all(struct graph_node *node);
/* Fills `order` with graph->count nodes, each behind its dependencies and otherwise in the order of
 * their making; returns NULL, or a node of a cycle. */
struct graph_node *graph_sort(struct CUgraph_st *graph, struct graph_node **order);

/* ---- what nodes do ------------------------------------------------------------------------- */

CUresult graph_describe_kernel(const CUDA_KERNEL_NODE_PARAMS *params, struct graph_node *work);
/* Takes what the kernels of a graph, and of those inside it, need of their contexts. */
CUresult graph_prepare_kernels(const struct CUgraph_st *graph);
bool graph_keep_arguments(struct graph_node *work, const struct launch *launch);
CUDA_KERNEL_NODE_PARAMS graph_newer_kernel_params(const CUDA_KERNEL_NODE_PARAMS_v1 *params);
CUresult graph_describe_copy(const CUDA_MEMCPY3D *params, CUcontext context,
                             struct graph_node *work);
/* The parameters and the kind of operation of a copy or fill of one dimension. */
void graph_complete_copy(struct graph_node *work);
void graph_complete_fill(struct graph_node *work);
CUresult graph_describe_fill(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context,
                             struct graph_node *work);
CUresult graph_describe_host(const CUDA_HOST_NODE_PARAMS *params, struct graph_node *work);
CUresult graph_describe_event(CUgraphNodeType type, CUevent event, struct graph_node *work);
CUresult graph_describe_child(const CUDA_CHILD_GRAPH_NODE_PARAMS *params, CUgraph graph,
                              struct graph_node *work);
CUresult graph_describe_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct graph_node *work);
CUresult graph_describe_conditional(CUDA_CONDITIONAL_NODE_PARAMS *params, CUgraph graph,
                                    struct graph_node *work);
/* A handle serves one node only. */
void graph_use_condition(struct CUgraph_st *graph, CUgraphConditionalHandle handle);
struct CUgraph_st *graph_chosen_body(const struct graph_node *node);
void graph_delete_conditions(struct CUgraph_st *graph);
bool graph_copy_bodies(struct graph_node *copy, const struct graph_node *node);
CUresult graph_describe_allocation(CUDA_MEM_ALLOC_NODE_PARAMS *params, CUgraph graph,
                                   struct graph_node *work);
CUresult graph_describe_free(CUdeviceptr address, CUgraph graph, struct graph_node *work);
/* Any kind; `graph` is where the node stands or will stand. */
CUresult graph_describe(CUgraphNodeParams *params, CUgraph graph, struct graph_node *work);

/* The calls that tell and change the parameters of nodes of one kind; `described` makes `work` of
 * `params` for `node`. */
#define GRAPH_NODE_CALLS(kind, type, params_type, described) \
    CUresult cuGraph##kind##NodeGetParams(CUgraphNode handle, params_type *params) \
    { \
        return graph_tell(handle, type, params, sizeof *params); \
    } \
    CUresult cuGraph##kind##NodeSetParams(CUgraphNode handle, const params_type *params) \
    { \
        struct graph_node *node = graph_node_of_type(handle, type), work; \
        CHECK(node ? described : CUDA_ERROR_INVALID_VALUE); \
        graph_work_replace(node, &work); \
        return CUDA_SUCCESS; \
    }

/* ---- user_object.c ------------------------------------------------------------------------- */

bool user_references_copy(struct user_reference **target, const struct user_reference *source);
/* Those of a graph and of all graphs inside it. */
bool user_references_collect(struct user_reference **target, const struct CUgraph_st *graph);
void user_references_drop(struct user_reference **references);

/* ---- graph_update.c ------------------------------------------------------------------------ */

/* What, if anything, forbids to exchange the work of an instantiated node. */
CUgraphExecUpdateResult graph_check_change(const struct graph_node *node,
                                           const struct graph_node *work, uint64_t exec_flags);
/* Gives the nodes of an instantiated graph the works of another graph of the same form. */
CUresult graph_update(struct CUgraph_st *target, struct CUgraph_st *source, uint64_t exec_flags,
                      CUgraphExecUpdateResultInfo *info);

#endif
