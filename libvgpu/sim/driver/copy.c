/* Copies and fills. The bytes move at once, on the calling thread (kernels compute nothing, so
 * nothing that is queued could change them); the time they take passes on the device's timeline. */
#include <string.h>

#include "driver.h"

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

static void run_copy(const struct graph_node *node)
{
    pthread_rwlock_rdlock(&memory_bytes_lock);
    memmove((void *)node->target, (const void *)node->source, node->bytes);
    pthread_rwlock_unlock(&memory_bytes_lock);
}

static void run_fill(const struct graph_node *node)
{
    unsigned char *target = (unsigned char *)node->target;
    pthread_rwlock_rdlock(&memory_bytes_lock);
    if (node->value_bytes == 1)
        memset(target, (int)node->value, node->bytes);
    else
        for (uint64_t at = 0; at + node->value_bytes <= node->bytes; at += node->value_bytes)
            memcpy(target + at, &node->value, node->value_bytes);
    pthread_rwlock_unlock(&memory_bytes_lock);
}

/* Puts a piece of work that moves bytes onto a stream, or into its capture. */
static CUresult issue(struct CUstream_st *stream, struct graph_node *node, uint32_t kind, bool wait)
{
    if (stream->capture)
        return wait ? capture_refuse(stream) : capture_add(stream, node);
    node->run(node);
    struct sim_submission submission = {.cost_ns = node->cost_ns, .kind = kind};
    stream_submit(stream, &submission);
    return wait ? stream_wait(stream) : CUDA_SUCCESS;
}

enum direction { TO_DEVICE, TO_HOST, ON_DEVICE, EITHER };

static CUresult copy(uint64_t target, uint64_t source, uint64_t bytes, enum direction direction,
                     CUstream handle, bool wait)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (!target || !source)
        return CUDA_ERROR_INVALID_VALUE;
    bool target_known = memory_find(target, bytes, NULL);
    bool source_known = memory_find(source, bytes, NULL);
    if ((direction == TO_DEVICE && !target_known) || (direction == TO_HOST && !source_known) ||
        (direction == ON_DEVICE && !(target_known && source_known)))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_profile *profile = &stream->context->device->identity->profile;
    bool on_device =
        direction == ON_DEVICE || (direction == EITHER && target_known && source_known);
    struct graph_node node = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                              .run = run_copy,
                              .target = target,
                              .source = source,
                              .bytes = bytes,
                              .cost_ns = on_device ? device_copy_cost_ns(profile, bytes)
                                                   : transfer_cost_ns(profile, bytes)};
    /* a copy inside the device does not hold up the host, even in its synchronous form */
    return issue(stream, &node, on_device ? SIM_OPERATION_MEMORY : SIM_OPERATION_TRANSFER,
                 wait && !on_device);
}

CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes)
{
    return copy(target, source, bytes, EITHER, NULL, true);
}

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream)
{
    return copy(target, source, bytes, EITHER, stream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t bytes)
{
    return copy(target, (uint64_t)source, bytes, TO_DEVICE, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t bytes)
{
    return copy((uint64_t)target, source, bytes, TO_HOST, NULL, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes)
{
    return copy(target, source, bytes, ON_DEVICE, NULL, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t bytes, CUstream stream)
{
    return copy(target, (uint64_t)source, bytes, TO_DEVICE, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t bytes, CUstream stream)
{
    return copy((uint64_t)target, source, bytes, TO_HOST, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream)
{
    return copy(target, source, bytes, ON_DEVICE, stream, false);
}

static CUresult fill(CUdeviceptr target, unsigned int value, unsigned int value_bytes, size_t count,
                     CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (count == 0)
        return CUDA_SUCCESS;
    uint64_t bytes = (uint64_t)count * value_bytes;
    if (count > UINT64_MAX / value_bytes || target % value_bytes ||
        !memory_find(target, bytes, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_profile *profile = &stream->context->device->identity->profile;
    struct graph_node node = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
                              .run = run_fill,
                              .target = target,
                              .bytes = bytes,
                              .value = value,
                              .value_bytes = value_bytes,
                              .cost_ns = device_copy_cost_ns(profile, bytes)};
    return issue(stream, &node, SIM_OPERATION_MEMORY, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count)
{
    return fill(target, value, 1, count, NULL);
}

CUresult cuMemsetD16_v2(CUdeviceptr target, unsigned short value, size_t count)
{
    return fill(target, value, 2, count, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned int value, size_t count)
{
    return fill(target, value, 4, count, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream)
{
    return fill(target, value, 1, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count, CUstream stream)
{
    return fill(target, value, 2, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream)
{
    return fill(target, value, 4, count, stream);
}
