/* Hooks of copies in a row, alone and in batches. Those inside one GPU take its time and wait
 * like launches; an estimate is kept of each kind of copy and number of bytes. The synchronous
 * forms, too, only wait for the cap where nothing of the host takes part. */
#include "hooks/hook_copy.h"

#include <stddef.h>

#include "driver/capture.h"
#include "slice/devices.h"
#include "slice/region.h"

#define COUNT_WIDTHS 64

/* What estimates are kept under, by address alone. The copies of a batch each take a time of their
 * own in addition to their bytes, so a batch goes by the width of their number, too. */
static const char row_copy;
static const char array_copy;
static const char batch_copy[COUNT_WIDTHS];
static const char box_batch_copy[COUNT_WIDTHS];

static bool is_device_memory(struct copy_side side)
{
    unsigned int type = 0;
    if (side.type == CU_MEMORYTYPE_ARRAY)
        return true;
    /* Also what is called device memory: the host's has device addresses, too. */
    return side.type != CU_MEMORYTYPE_HOST && real.cuPointerGetAttribute != NULL &&
           real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, side.address) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

static bool is_one_device(struct copy_side target, struct copy_side source)
{
    if (region_device_count() < 2 || target.type == CU_MEMORYTYPE_ARRAY ||
        source.type == CU_MEMORYTYPE_ARRAY)
        return true;
    return devices_of_pointer(target.address) == devices_of_pointer(source.address);
}

/* True when both sides are on one GPU, as far as can be told: arrays do not say on which. What the
 * driver does not know is memory of the host. */
static bool is_inside(struct copy_side target, struct copy_side source)
{
    if (region_open() != REGION_MAPPED)
        return true; /* the gate has the answer to that */
    struct capture_pause pause = capture_pause();
    bool answer =
        is_device_memory(target) && is_device_memory(source) && is_one_device(target, source);
    capture_resume(pause);
    return answer;
}

static int width_of(size_t count)
{
    return 63 - __builtin_clzll((unsigned long long)count | 1);
}

CUresult copy_ask(struct launch *launch, const void *field, const void *kind,
                  struct copy_side target, struct copy_side source, uint64_t bytes, CUstream stream)
{
    if (!cuda_has(field))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (bytes == 0 || is_inside(target, source))
        return launch_ask(launch, field, kind, bytes, stream, false);
    throttle_before_wait();
    return CUDA_SUCCESS;
}

#define ROW_COPY(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, CUdeviceptr source, size_t bytes) \
    { \
        LAUNCH(gate_is_open(), \
               copy_ask(&launch, &real.symbol, &row_copy, COPY_SIDE(target), COPY_SIDE(source), \
                        bytes, launch_stream(NULL, per_thread)), \
               real.symbol(target, source, bytes)); \
    }

#define ROW_COPY_ASYNC(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, CUdeviceptr source, size_t bytes, \
                                CUstream stream) \
    { \
        LAUNCH(gate_is_open(), \
               copy_ask(&launch, &real.symbol, &row_copy, COPY_SIDE(target), COPY_SIDE(source), \
                        bytes, launch_stream(stream, per_thread)), \
               real.symbol(target, source, bytes, stream)); \
    }

ROW_COPY(cuMemcpy, 0)
ROW_COPY(cuMemcpy_ptds, 1)
ROW_COPY(cuMemcpyDtoD_v2, 0)
ROW_COPY(cuMemcpyDtoD_v2_ptds, 1)
ROW_COPY_ASYNC(cuMemcpyAsync, 0)
ROW_COPY_ASYNC(cuMemcpyAsync_ptsz, 1)
ROW_COPY_ASYNC(cuMemcpyDtoDAsync_v2, 0)
ROW_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, 1)

/* Two contexts may be of one GPU. */
#define PEER_COPY(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, \
                                CUcontext source_context, size_t bytes) \
    { \
        LAUNCH(gate_is_open(), \
               copy_ask(&launch, &real.symbol, &row_copy, COPY_SIDE(target), COPY_SIDE(source), \
                        bytes, launch_stream(NULL, per_thread)), \
               real.symbol(target, target_context, source, source_context, bytes)); \
    }

#define PEER_COPY_ASYNC(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, \
                                CUcontext source_context, size_t bytes, CUstream stream) \
    { \
        LAUNCH(gate_is_open(), \
               copy_ask(&launch, &real.symbol, &row_copy, COPY_SIDE(target), COPY_SIDE(source), \
                        bytes, launch_stream(stream, per_thread)), \
               real.symbol(target, target_context, source, source_context, bytes, stream)); \
    }

PEER_COPY(cuMemcpyPeer, 0)
PEER_COPY(cuMemcpyPeer_ptds, 1)
PEER_COPY_ASYNC(cuMemcpyPeerAsync, 0)
PEER_COPY_ASYNC(cuMemcpyPeerAsync_ptsz, 1)

/* ---- arrays ---------------------------------------------------------------------------------- */

static const struct copy_side array_side = {CU_MEMORYTYPE_ARRAY, 0};

#define TO_ARRAY(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(CUarray target, size_t offset, CUdeviceptr source, size_t bytes) \
    { \
        LAUNCH(gate_is_open(), \
               copy_ask(&launch, &real.symbol, &array_copy, array_side, COPY_SIDE(source), bytes, \
                        launch_stream(NULL, per_thread)), \
               real.symbol(target, offset, source, bytes)); \
    }

#define FROM_ARRAY(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, CUarray source, size_t offset, size_t bytes) \
    { \
        LAUNCH(gate_is_open(), \
               copy_ask(&launch, &real.symbol, &array_copy, COPY_SIDE(target), array_side, bytes, \
                        launch_stream(NULL, per_thread)), \
               real.symbol(target, source, offset, bytes)); \
    }

#define BETWEEN_ARRAYS(symbol, size, per_thread) \
    VGPU_EXPORT CUresult symbol(CUarray target, size target_offset, CUarray source, \
                                size source_offset, size bytes) \
    { \
        LAUNCH_KIND(symbol, &array_copy, bytes, launch_stream(NULL, per_thread), false, \
                    real.symbol(target, target_offset, source, source_offset, bytes)); \
    }

TO_ARRAY(cuMemcpyDtoA_v2, 0)
TO_ARRAY(cuMemcpyDtoA_v2_ptds, 1)
FROM_ARRAY(cuMemcpyAtoD_v2, 0)
FROM_ARRAY(cuMemcpyAtoD_v2_ptds, 1)
BETWEEN_ARRAYS(cuMemcpyAtoA, unsigned int, 0)
BETWEEN_ARRAYS(cuMemcpyAtoA_v2, size_t, 0)
BETWEEN_ARRAYS(cuMemcpyAtoA_v2_ptds, size_t, 1)

/* ---- batches --------------------------------------------------------------------------------- */

/* The bytes of a batch that move inside one GPU. */
static uint64_t inside_bytes(const CUdeviceptr *targets, const CUdeviceptr *sources,
                             const size_t *sizes, size_t count)
{
    uint64_t bytes = 0;
    if (targets == NULL || sources == NULL || sizes == NULL)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (is_inside(COPY_SIDE(targets[i]), COPY_SIDE(sources[i])))
            bytes += sizes[i];
    return bytes;
}

static struct copy_side operand_side(const CUmemcpy3DOperand *operand)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        return array_side;
    return COPY_SIDE(operand->op.ptr.ptr);
}

/* The same of boxes, in elements: how large those are only arrays know. */
static uint64_t inside_elements(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count)
{
    uint64_t elements = 0;
    for (size_t i = 0; copies != NULL && i < count; i++)
        if (is_inside(operand_side(&copies[i].dst), operand_side(&copies[i].src)))
            elements += copies[i].extent.width * copies[i].extent.height * copies[i].extent.depth;
    return elements;
}

/* Of a batch without anything inside one GPU nothing is charged. */
static CUresult copies_ask(struct launch *launch, const void *field, const char *kinds,
                           uint64_t amount, size_t count, CUstream stream)
{
    if (amount > 0)
        return launch_ask(launch, field, &kinds[width_of(count)], amount, stream, false);
    throttle_before_wait();
    return CUDA_SUCCESS;
}

static CUresult row_batch_ask(struct launch *launch, const void *field, const CUdeviceptr *targets,
                              const CUdeviceptr *sources, const size_t *sizes, size_t count,
                              CUstream stream)
{
    if (!cuda_has(field))
        return CUDA_ERROR_NOT_INITIALIZED;
    return copies_ask(launch, field, batch_copy, inside_bytes(targets, sources, sizes, count),
                      count, stream);
}

static CUresult box_batch_ask(struct launch *launch, const void *field,
                              const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count, CUstream stream)
{
    if (!cuda_has(field))
        return CUDA_ERROR_NOT_INITIALIZED;
    return copies_ask(launch, field, box_batch_copy, inside_elements(copies, count), count, stream);
}

#define BATCH_ARGUMENTS \
    CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count, \
        CUmemcpyAttributes *attributes, size_t *firsts, size_t attribute_count
#define BATCH_VALUES targets, sources, sizes, count, attributes, firsts, attribute_count

#define ROW_BATCH(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(BATCH_ARGUMENTS, size_t *failed, CUstream stream) \
    { \
        LAUNCH(gate_is_open(), \
               row_batch_ask(&launch, &real.symbol, targets, sources, sizes, count, \
                             launch_stream(stream, per_thread)), \
               real.symbol(BATCH_VALUES, failed, stream)); \
    }

#define ROW_BATCH_V2(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(BATCH_ARGUMENTS, CUstream stream) \
    { \
        LAUNCH(gate_is_open(), \
               row_batch_ask(&launch, &real.symbol, targets, sources, sizes, count, \
                             launch_stream(stream, per_thread)), \
               real.symbol(BATCH_VALUES, stream)); \
    }

#define BOX_BATCH(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, \
                                unsigned long long flags, CUstream stream) \
    { \
        LAUNCH(gate_is_open(), \
               box_batch_ask(&launch, &real.symbol, copies, count, \
                             launch_stream(stream, per_thread)), \
               real.symbol(count, copies, failed, flags, stream)); \
    }

#define BOX_BATCH_V2(symbol, per_thread) \
    VGPU_EXPORT CUresult symbol(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, \
                                unsigned long long flags, CUstream stream) \
    { \
        LAUNCH(gate_is_open(), \
               box_batch_ask(&launch, &real.symbol, copies, count, \
                             launch_stream(stream, per_thread)), \
               real.symbol(count, copies, flags, stream)); \
    }

ROW_BATCH(cuMemcpyBatchAsync, 0)
ROW_BATCH(cuMemcpyBatchAsync_ptsz, 1)
ROW_BATCH_V2(cuMemcpyBatchAsync_v2, 0)
ROW_BATCH_V2(cuMemcpyBatchAsync_v2_ptsz, 1)
BOX_BATCH(cuMemcpy3DBatchAsync, 0)
BOX_BATCH(cuMemcpy3DBatchAsync_ptsz, 1)
BOX_BATCH_V2(cuMemcpy3DBatchAsync_v2, 0)
BOX_BATCH_V2(cuMemcpy3DBatchAsync_v2_ptsz, 1)
