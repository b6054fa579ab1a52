/*
 * Copies of boxes: between memory with a pitch and CUDA arrays, in two and three dimensions. Each
 * side becomes a region (rows in slices), after its bounds were checked; cuMemcpy2D and the copies
 * to and from one-dimensional arrays are boxes that are flat.
 *
 * Decided without a source: a pitch or height of 0 means packed (the documentation has rules for
 * the case that one is given), and a copy without any bytes does nothing.
 */
#include "array.h"
#include "twins.h"

#define MAX_PITCH_BYTES 0x7fffffffu

/* Memory without an array: where the box begins, and whether its bounds can be. */
static CUresult pitched_region(const struct copy_operand *operand, const struct copy_extent *extent,
                               struct region *region)
{
    uint64_t packed_bytes, packed_rows;
    INVALID_IF(!operand->address || operand->pitch_bytes > MAX_PITCH_BYTES ||
               __builtin_add_overflow(operand->x_bytes, extent->width_bytes, &packed_bytes) ||
               __builtin_add_overflow(operand->y, extent->height, &packed_rows));
    uint64_t pitch_bytes = operand->pitch_bytes ? operand->pitch_bytes : packed_bytes;
    uint64_t height = operand->height ? operand->height : packed_rows;
    INVALID_IF(pitch_bytes < packed_bytes || (extent->depth > 1 && height < packed_rows));
    __int128 slice_bytes = (__int128)height * pitch_bytes;
    INVALID_IF(slice_bytes > INT64_MAX || (__int128)packed_rows * pitch_bytes > INT64_MAX ||
               ((__int128)operand->z + extent->depth) * slice_bytes > INT64_MAX);
    uint64_t offset = operand->z * (uint64_t)slice_bytes + operand->y * pitch_bytes;
    INVALID_IF(
        __builtin_add_overflow(operand->address, offset + operand->x_bytes, &region->address));
    region->width_bytes = extent->width_bytes;
    region->rows = extent->height;
    region->slices = extent->depth;
    region->pitch_bytes = pitch_bytes;
    region->slice_pitch_bytes = (uint64_t)slice_bytes;
    return CUDA_SUCCESS;
}

CUresult copy_resolve(const struct copy_operand *operand, const struct copy_extent *extent,
                      struct region *region)
{
    if (operand->type == CU_MEMORYTYPE_ARRAY)
        return array_region(operand->array, operand, extent, region);
    INVALID_IF(operand->type < CU_MEMORYTYPE_HOST || operand->type > CU_MEMORYTYPE_UNIFIED);
    CHECK(pitched_region(operand, extent, region));
    struct allocation found;
    bool device_memory = memory_find(region->address, 1, &found);
    if (!device_memory)
        return operand->type == CU_MEMORYTYPE_DEVICE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    return memory_find(region->address, region_span_bytes(region), NULL) ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_between(struct CUstream_st *stream, const struct copy_operand *target,
                      const struct copy_operand *source, const struct copy_extent *extent,
                      bool wait)
{
    struct region to, from;
    if (extent->width_bytes == 0 || extent->height == 0 || extent->depth == 0)
        return CUDA_SUCCESS;
    CHECK(copy_resolve(target, extent, &to));
    CHECK(copy_resolve(source, extent, &from));
    return copy_issue(stream, &to, &from, wait);
}

/* ---- in two dimensions ----------------------------------------------------------------------- */

static uint64_t address_of(CUmemorytype type, const void *host, CUdeviceptr device)
{
    return type == CU_MEMORYTYPE_HOST ? (uint64_t)host : device;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *box, CUstream handle, bool wait)
{
    INVALID_IF(!box);
    struct copy_operand target = {
        .type = box->dstMemoryType,
        .address = address_of(box->dstMemoryType, box->dstHost, box->dstDevice),
        .array = box->dstArray,
        .x_bytes = box->dstXInBytes,
        .y = box->dstY,
        .pitch_bytes = box->dstPitch,
    };
    struct copy_operand source = {
        .type = box->srcMemoryType,
        .address = address_of(box->srcMemoryType, box->srcHost, box->srcDevice),
        .array = box->srcArray,
        .x_bytes = box->srcXInBytes,
        .y = box->srcY,
        .pitch_bytes = box->srcPitch,
    };
    struct copy_extent extent = {box->WidthInBytes, box->Height, 1};
    RESOLVE_STREAM(stream, handle);
    return copy_between(stream, &target, &source, &extent, wait);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *box)
{
    return copy_2d(box, NULL, true);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *box)
{
    return copy_2d(box, NULL, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *box, CUstream stream)
{
    return copy_2d(box, stream, false);
}

/* ---- in three dimensions --------------------------------------------------------------------- */

/* The form between contexts has the same members, with the contexts in place of the reserved
 * ones. */
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "one layout");

CUresult copy_resolve_box(const CUDA_MEMCPY3D *box, struct region *to, struct region *from)
{
    INVALID_IF(box->srcLOD || box->dstLOD);
    struct copy_operand target = {
        .type = box->dstMemoryType,
        .address = address_of(box->dstMemoryType, box->dstHost, box->dstDevice),
        .array = box->dstArray,
        .x_bytes = box->dstXInBytes,
        .y = box->dstY,
        .z = box->dstZ,
        .pitch_bytes = box->dstPitch,
        .height = box->dstHeight,
    };
    struct copy_operand source = {
        .type = box->srcMemoryType,
        .address = address_of(box->srcMemoryType, box->srcHost, box->srcDevice),
        .array = box->srcArray,
        .x_bytes = box->srcXInBytes,
        .y = box->srcY,
        .z = box->srcZ,
        .pitch_bytes = box->srcPitch,
        .height = box->srcHeight,
    };
    struct copy_extent extent = {box->WidthInBytes, box->Height, box->Depth};
    CHECK(copy_resolve(&target, &extent, to));
    return copy_resolve(&source, &extent, from);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *box, CUstream handle, bool wait)
{
    struct CUstream_st *stream;
    struct region target, source;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS || !box->WidthInBytes || !box->Height || !box->Depth)
        return result;
    result = copy_resolve_box(box, &target, &source);
    return result == CUDA_SUCCESS ? copy_issue(stream, &target, &source, wait) : result;
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *box)
{
    return box && !box->reserved0 && !box->reserved1 ? copy_3d(box, NULL, true)
                                                     : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *box, CUstream stream)
{
    return box && !box->reserved0 && !box->reserved1 ? copy_3d(box, stream, false)
                                                     : CUDA_ERROR_INVALID_VALUE;
}

/* An array knows its context, whatever is given. */
static bool context_is_good(CUmemorytype type, const struct CUctx_st *context)
{
    return type != CU_MEMORYTYPE_DEVICE || (context_is_one(context) && context->alive);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *box, CUstream stream, bool wait)
{
    INVALID_IF(!box);
    REFUSE_IF(!context_is_good(box->dstMemoryType, box->dstContext) ||
                  !context_is_good(box->srcMemoryType, box->srcContext),
              CUDA_ERROR_INVALID_CONTEXT);
    return copy_3d((const CUDA_MEMCPY3D *)box, stream, wait);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *box)
{
    return copy_3d_peer(box, NULL, true);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *box, CUstream stream)
{
    return copy_3d_peer(box, stream, false);
}

TWIN(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *box), cuMemcpy2D_v2(box))
TWIN(cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *box), cuMemcpy2DUnaligned_v2(box))
TWIN(cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *box, CUstream stream),
     cuMemcpy2DAsync_v2(box, OWN(stream)))
TWIN(cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *box), cuMemcpy3D_v2(box))
TWIN(cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *box, CUstream stream),
     cuMemcpy3DAsync_v2(box, OWN(stream)))
TWIN(cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER *box), cuMemcpy3DPeer(box))
TWIN(cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D_PEER *box, CUstream stream),
     cuMemcpy3DPeerAsync(box, OWN(stream)))
