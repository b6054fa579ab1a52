/* What a graph needs at one time: see graph_peak.h.
 *
 * Whether a free is before an allocation is told by labels. The nodes that free are put into rows,
 * in each of which every node is reached from the one before; a node's label has for each row how
 * far into it the nodes reach that lead to it. Rows are limited: what is freed by a node that finds
 * none is never taken to be free again. */
#include "memory/graphs/graph_peak.h"

#include <string.h>
#include <sys/mman.h>

#include "driver/real.h"
#include "memory/graphs/graph_walk.h"
#include "memory/ledger/charge.h"

#define MOST_DEPTH 32   /* of graphs in graphs */
#define MOST_PLACES 512 /* that may be used again */

/* Where one allocation after the other goes. */
struct place {
    CUdevice ordinal;
    uint64_t bytes;
    uint32_t row, step; /* behind which it is free; step 0: it never is */
};

struct places {
    struct graph_peak *peak;
    struct graph_walk *walk;
    uint32_t reached[GRAPH_ROWS]; /* how many nodes are in each row */
    uint32_t count;
    struct place each[MOST_PLACES];
};

static void add(uint64_t *sum_bytes, uint64_t bytes)
{
    if (__builtin_add_overflow(*sum_bytes, bytes, sum_bytes))
        *sum_bytes = UINT64_MAX - 511;
}

/* Where a device is in the list; of more devices than it has room for the last stands for all. */
static int device_at(struct graph_peak *peak, CUdevice ordinal)
{
    int at = 0;
    while (at < peak->count && peak->each[at].ordinal < ordinal)
        at++;
    if (at < peak->count && peak->each[at].ordinal == ordinal)
        return at;
    if (peak->count == GRAPH_MOST_DEVICES)
        return GRAPH_MOST_DEVICES - 1;
    memmove(&peak->each[at + 1], &peak->each[at],
            (size_t)(peak->count - at) * sizeof peak->each[0]);
    memset(&peak->each[at], 0, sizeof peak->each[at]);
    peak->each[at].ordinal = ordinal;
    peak->count++;
    return at;
}

/* ---- places ---- */

static bool is_free_for(const struct place *place, CUdevice ordinal, const uint32_t *label)
{
    return place->ordinal == ordinal && place->step != 0 && label[place->row] >= place->step;
}

/* Of two places that are free, the one that fits better: the smallest that is large enough, else the
 * largest. */
static bool is_better(const struct place *place, const struct place *best, uint64_t bytes)
{
    if (best == NULL)
        return true;
    if (best->bytes >= bytes)
        return place->bytes >= bytes && place->bytes < best->bytes;
    return place->bytes > best->bytes;
}

/* Returns NULL for a place that is never free again. */
static struct place *take_place(struct places *places, uint32_t node, CUdevice ordinal,
                                uint64_t bytes)
{
    const uint32_t *label = places->walk->labels[node];
    struct place *best = NULL;
    for (uint32_t i = 0; i < places->count; i++)
        if (is_free_for(&places->each[i], ordinal, label) &&
            is_better(&places->each[i], best, bytes))
            best = &places->each[i];
    if (best == NULL && places->count < MOST_PLACES) {
        best = &places->each[places->count++];
        *best = (struct place){.ordinal = ordinal};
    }
    uint64_t had_bytes = best != NULL ? best->bytes : 0;
    if (bytes > had_bytes)
        add(&places->peak->each[device_at(places->peak, ordinal)].shared_bytes, bytes - had_bytes);
    if (best == NULL)
        return NULL;
    best->step = 0;
    best->bytes = bytes > had_bytes ? bytes : had_bytes;
    return best;
}

/* Puts a node that frees into a row. False: none was to be had. */
static bool join_row(struct places *places, uint32_t node, uint32_t *row, uint32_t *step)
{
    uint32_t *label = places->walk->labels[node];
    for (*row = 0; *row < GRAPH_ROWS; ++*row)
        if (label[*row] == places->reached[*row]) { /* an empty row, too */
            *step = label[*row] = ++places->reached[*row];
            return true;
        }
    return false;
}

static void leave_place(struct place *place, uint32_t row, uint32_t step)
{
    if (place != NULL) {
        place->row = row;
        place->step = step;
    }
}

/* All of a child graph's memory is taken and left by its node. */
static void visit_child(struct places *places, uint32_t node, const struct graph_peak *child)
{
    struct place *taken[GRAPH_MOST_DEVICES];
    uint32_t row, step;
    places->peak->has_collective |= child->has_collective;
    if (child->local_bytes_a_thread > places->peak->local_bytes_a_thread)
        places->peak->local_bytes_a_thread = child->local_bytes_a_thread;
    for (int i = 0; i < child->count; i++) {
        CUdevice ordinal = child->each[i].ordinal;
        add(&places->peak->each[device_at(places->peak, ordinal)].lasting_bytes,
            child->each[i].lasting_bytes);
        taken[i] = take_place(places, node, ordinal, child->each[i].shared_bytes);
    }
    if (child->count == 0 || !join_row(places, node, &row, &step))
        return;
    for (int i = 0; i < child->count; i++)
        leave_place(taken[i], row, step);
}

/* ---- nodes ---- */

static CUresult peak_of(CUgraph graph, struct graph_peak *peak, int depth);

static CUresult visit(struct places *places, uint32_t at, int depth)
{
    struct graph_walk_node *node = &places->walk->nodes[at];
    struct graph_peak inner;
    CUgraph child;
    CUresult result = CUDA_SUCCESS;
    uint32_t row, step;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        if (node->freed_by == GRAPH_NO_NODE)
            add(&places->peak->each[device_at(places->peak, node->ordinal)].lasting_bytes,
                node->bytes);
        else
            places->walk->nodes[node->freed_by].place =
                take_place(places, at, node->ordinal, node->bytes);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (node->place != NULL && join_row(places, at, &row, &step))
            leave_place(node->place, row, step);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (depth == MOST_DEPTH || real.cuGraphChildGraphNodeGetGraph == NULL)
            break;
        result = real.cuGraphChildGraphNodeGetGraph(node->handle, &child);
        if (result == CUDA_SUCCESS)
            result = peak_of(child, &inner, depth + 1);
        if (result == CUDA_SUCCESS)
            visit_child(places, at, &inner);
        break;
    default:
        break;
    }
    return result;
}

static CUresult peak_of(CUgraph graph, struct graph_peak *peak, int depth)
{
    struct graph_walk walk;
    peak->count = 0;
    CUresult result = graph_walk_begin(&walk, graph);
    peak->local_bytes_a_thread = walk.local_bytes_a_thread;
    peak->has_collective = walk.has_collective;
    if (result != CUDA_SUCCESS || walk.count == 0)
        return result;
    struct places *places =
        mmap(NULL, sizeof *places, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (places == MAP_FAILED) {
        graph_walk_end(&walk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    places->peak = peak;
    places->walk = &walk;
    for (uint32_t i = 0; i < walk.count && result == CUDA_SUCCESS; i++) {
        result = visit(places, walk.order[i], depth);
        graph_walk_pass_on(&walk, walk.order[i]);
    }
    munmap(places, sizeof *places);
    graph_walk_end(&walk);
    return result;
}

CUresult graph_peak_of(CUgraph graph, struct graph_peak *peak)
{
    return peak_of(graph, peak, 0);
}
