/* Copies and fills. The bytes move at once, on the calling thread: kernels compute nothing, so
 * nothing that is queued could change them, unless a host function or a wait for a word of memory
 * is pending somewhere; then they move on a driver thread when the stream gets there. The time they
 * take passes on the device's timeline: at the bandwidth of its memory where both sides are on one
 * device, else at that of PCIe, of the stream's device alone. */
#include "copy.h"

#include <stdlib.h>
#include <string.h>

#include "managed.h"
#include "twins.h"

#define TRANSFER_LATENCY_NS 2000
#define DEVICE_LATENCY_NS 1500
#define NS_PER_SECOND 1000000000.0

uint64_t transfer_cost_ns(const struct sim_profile *profile, uint64_t bytes)
{
    return TRANSFER_LATENCY_NS +
           (uint64_t)((double)bytes * NS_PER_SECOND / (double)profile->pcie_bytes_per_second);
}

uint64_t device_copy_cost_ns(const struct sim_profile *profile, uint64_t bytes)
{
    return DEVICE_LATENCY_NS +
           (uint64_t)((double)bytes * NS_PER_SECOND / (double)profile->memory_bytes_per_second);
}

/* ---- the bytes ------------------------------------------------------------------------------- */

static void fill_row(unsigned char *target, const struct graph_node *node)
{
    if (node->value_bytes == 1) {
        memset(target, (int)node->value, node->bytes);
        return;
    }
    for (uint64_t at = 0; at + node->value_bytes <= node->bytes; at += node->value_bytes)
        memcpy(target + at, &node->value, node->value_bytes);
}

static void move_row(const struct graph_node *node, uint64_t row, uint64_t slice)
{
    const struct copy_rows *box = &node->box;
    uint64_t target =
        node->target + slice * box->target_slice_bytes + row * box->target_pitch_bytes;
    uint64_t source =
        node->source + slice * box->source_slice_bytes + row * box->source_pitch_bytes;
    if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        memmove((void *)target, (const void *)source, node->bytes);
    else if (node->value)
        fill_row((unsigned char *)target, node);
    else
        backing_clear(target, node->bytes);
}

static CUresult move(const struct graph_node *node)
{
    struct region target = {.address = node->target,
                            .width_bytes = node->bytes,
                            .rows = node->box.rows,
                            .slices = node->box.slices,
                            .pitch_bytes = node->box.target_pitch_bytes,
                            .slice_pitch_bytes = node->box.target_slice_bytes};
    managed_touch(target.address, region_span_bytes(&target));
    bool zeroes = node->type == CU_GRAPH_NODE_TYPE_MEMSET && !node->value;
    CHECK(zeroes ? CUDA_SUCCESS : backing_claim(&target));
    pthread_rwlock_rdlock(&memory_bytes_lock);
    for (uint64_t slice = 0; slice < node->box.slices; slice++)
        for (uint64_t row = 0; row < node->box.rows; row++)
            move_row(node, row, slice);
    pthread_rwlock_unlock(&memory_bytes_lock);
    return CUDA_SUCCESS;
}

/* In a graph's launch nobody takes the answer: bytes that find no host memory stay as they were,
 * and the line on stderr says why. */
static void run(const struct graph_node *node)
{
    move(node);
}

static void run_in_turn(void *argument)
{
    struct graph_node *node = argument;
    run(node);
    free(node);
}

/* Memory of the host that the driver does not know of: the program may use it again, or free it, as
 * soon as the call has returned. */
static bool is_pageable(uint64_t address)
{
    return !memory_find(address, 1, NULL);
}

/* Has the copy read from `staged` what it would read from its source. */
static void stage(struct graph_node *node, unsigned char *staged)
{
    struct copy_rows packed = node->box;
    packed.source_pitch_bytes = node->bytes;
    packed.source_slice_bytes = node->bytes * node->box.rows;
    for (uint64_t slice = 0; slice < node->box.slices; slice++)
        for (uint64_t row = 0; row < node->box.rows; row++)
            memcpy(staged + slice * packed.source_slice_bytes + row * packed.source_pitch_bytes,
                   (const char *)node->source + slice * node->box.source_slice_bytes +
                       row * node->box.source_pitch_bytes,
                   node->bytes);
    node->source = (CUdeviceptr)staged;
    node->box = packed;
}

static CUresult move_in_turn(struct CUstream_st *stream, const struct graph_node *node)
{
    bool staged = node->type == CU_GRAPH_NODE_TYPE_MEMCPY && is_pageable(node->source);
    struct graph_node *own =
        malloc(sizeof *own + (staged ? node->bytes * node->box.rows * node->box.slices : 0));
    REFUSE_IF(!own, CUDA_ERROR_OUT_OF_MEMORY);
    *own = *node;
    if (staged)
        stage(own, (unsigned char *)(own + 1));
    CUresult result = stream_call(stream, run_in_turn, own);
    if (result != CUDA_SUCCESS)
        free(own);
    return result;
}

/* Puts a piece of work that moves bytes onto a stream, or into its capture. */
static CUresult issue(struct CUstream_st *stream, struct graph_node *node, bool wait)
{
    if (stream_capture(stream))
        return wait ? capture_refuse(stream) : capture_add(stream, node);
    bool in_turn = stream_calls_pending();
    CUresult result = in_turn ? move_in_turn(stream, node) : move(node);
    wait = wait || (in_turn && is_pageable(node->target)); /* as documented: it is done then */
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_submission submission = {.cost_ns = node->cost_ns, .kind = node->kind};
    stream_submit(stream, &submission);
    return wait ? stream_wait(stream) : CUDA_SUCCESS;
}

/* Whether a range lies in what it begins in. Elsewhere on the host the driver cannot tell. */
static bool ends_inside(uint64_t address, uint64_t bytes)
{
    struct allocation found;
    return !memory_find(address, 1, &found) || found.kind == ALLOCATION_REGISTERED ||
           memory_find(address, bytes, NULL);
}

/* The device on which a region lies; NULL: on the host. */
static const struct driver_device *device_holding(const struct region *region)
{
    struct allocation found;
    return memory_find(region->address, region->width_bytes, &found) ? allocation_device(&found)
                                                                     : NULL;
}

void copy_describe(const struct driver_device *device, const struct region *target,
                   const struct region *source, struct graph_node *node, bool *with_host)
{
    const struct sim_profile *profile = &device->identity->profile;
    const struct driver_device *to = device_holding(target), *from = device_holding(source);
    bool inside = to && to == from;
    uint64_t bytes = region_bytes(target);
    *node = (struct graph_node){
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .run = run,
        .target = target->address,
        .source = source->address,
        .bytes = target->width_bytes,
        .box = {target->rows, target->slices, target->pitch_bytes, target->slice_pitch_bytes,
                source->pitch_bytes, source->slice_pitch_bytes},
        .kind = inside ? SIM_OPERATION_MEMORY : SIM_OPERATION_TRANSFER,
        .cost_ns = inside ? device_copy_cost_ns(profile, bytes) : transfer_cost_ns(profile, bytes),
    };
    *with_host = !(to && from);
}

CUresult copy_issue(struct CUstream_st *stream, const struct region *target,
                    const struct region *source, bool wait)
{
    struct graph_node node;
    bool with_host;
    copy_describe(stream->context->device, target, source, &node, &with_host);
    /* a copy between devices does not hold up the host, even in its synchronous form */
    return issue(stream, &node, wait && with_host);
}

void fill_describe(const struct driver_device *device, const struct region *target,
                   unsigned int value, unsigned int value_bytes, struct graph_node *node)
{
    *node = (struct graph_node){
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .run = run,
        .target = target->address,
        .bytes = target->width_bytes,
        .box = {.rows = target->rows,
                .slices = target->slices,
                .target_pitch_bytes = target->pitch_bytes,
                .target_slice_bytes = target->slice_pitch_bytes},
        .value = value,
        .value_bytes = value_bytes,
        .kind = SIM_OPERATION_MEMORY,
        .cost_ns = device_copy_cost_ns(&device->identity->profile, region_bytes(target)),
    };
}

CUresult fill_issue(struct CUstream_st *stream, const struct region *target, unsigned int value,
                    unsigned int value_bytes)
{
    struct graph_node node;
    fill_describe(stream->context->device, target, value, value_bytes, &node);
    return issue(stream, &node, false);
}

/* ---- entry points ---------------------------------------------------------------------------- */

enum direction { TO_DEVICE, TO_HOST, ON_DEVICE, EITHER };

static CUresult copy(uint64_t target, uint64_t source, uint64_t bytes, enum direction direction,
                     CUstream handle, bool wait)
{
    RESOLVE_STREAM(stream, handle);
    if (bytes == 0)
        return CUDA_SUCCESS;
    INVALID_IF(!target || !source);
    INVALID_IF(
        ((direction == TO_DEVICE || direction == ON_DEVICE) && !memory_find(target, bytes, NULL)) ||
        ((direction == TO_HOST || direction == ON_DEVICE) && !memory_find(source, bytes, NULL)));
    INVALID_IF(!ends_inside(target, bytes) || !ends_inside(source, bytes));
    struct region to = region_of_row(target, bytes), from = region_of_row(source, bytes);
    return copy_issue(stream, &to, &from, wait);
}

/* A copy at once and on a stream, and the twins of both. */
#define COPIES(name, version, kind, target_type, source_type, direction) \
    CUresult name##version(target_type target, source_type source, size_t bytes) \
    { \
        CALL_TAKES(kind); \
        return copy((uint64_t)target, (uint64_t)source, bytes, direction, NULL, true); \
    } \
    CUresult name##Async##version(target_type target, source_type source, size_t bytes, \
                                  CUstream stream) \
    { \
        CALL_TAKES(kind##Async); \
        return copy((uint64_t)target, (uint64_t)source, bytes, direction, stream, false); \
    } \
    TWIN(name##Async##version##_ptsz, \
         (target_type target, source_type source, size_t bytes, CUstream stream), \
         name##Async##version(target, source, bytes, OWN(stream))) \
    TWIN(name##version##_ptds, (target_type target, source_type source, size_t bytes), \
         name##version(target, source, bytes))

COPIES(cuMemcpy, , cuMemcpyHtoD, CUdeviceptr, CUdeviceptr, EITHER)
COPIES(cuMemcpyHtoD, _v2, cuMemcpyHtoD, CUdeviceptr, const void *, TO_DEVICE)
COPIES(cuMemcpyDtoH, _v2, cuMemcpyDtoH, void *, CUdeviceptr, TO_HOST)
COPIES(cuMemcpyDtoD, _v2, cuMemcpyDtoD, CUdeviceptr, CUdeviceptr, ON_DEVICE)
