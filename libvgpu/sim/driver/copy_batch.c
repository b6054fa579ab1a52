/* Batches of copies: all of them are looked at before the first begins, so that a batch that is
 * refused did nothing (unless it is host memory that runs out). Where to put what is read, and when
 * it may be read, are hints that change nothing: bytes move during the call. */
#include "array.h"
#include "twins.h"

/* Attributes are for copies from their index up to the next one's. */
static CUresult check_attributes(const CUmemcpyAttributes *attributes, const size_t *firsts,
                                 size_t attribute_count, size_t copy_count)
{
    INVALID_IF(!attributes || !firsts || attribute_count == 0 || attribute_count > copy_count ||
               firsts[0] != 0);
    for (size_t i = 0; i < attribute_count; i++)
        INVALID_IF(attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                   attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
                   firsts[i] >= copy_count || (i > 0 && firsts[i] <= firsts[i - 1]));
    return CUDA_SUCCESS;
}

/* The default stream cannot take a batch. */
static CUresult resolve(CUstream handle, struct CUstream_st **stream)
{
    CHECK(stream_resolve(handle, stream));
    INVALID_IF(*stream == &(*stream)->context->legacy);
    return CUDA_SUCCESS;
}

static CUresult copy_all(const CUdeviceptr *targets, const CUdeviceptr *sources,
                         const size_t *sizes, size_t count, size_t *failed,
                         struct CUstream_st *stream)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++) {
            struct copy_operand target = {.type = CU_MEMORYTYPE_UNIFIED, .address = targets[i]};
            struct copy_operand source = {.type = CU_MEMORYTYPE_UNIFIED, .address = sources[i]};
            struct copy_extent extent = {sizes[i], 1, 1};
            struct region to, from;
            CUresult result =
                sizes[i] ? copy_resolve(&target, &extent, &to) : CUDA_ERROR_INVALID_VALUE;
            if (result == CUDA_SUCCESS)
                result = copy_resolve(&source, &extent, &from);
            if (result == CUDA_SUCCESS && pass == 1)
                result = copy_issue(stream, &to, &from, false);
            if (result != CUDA_SUCCESS) {
                *failed = i;
                return result;
            }
        }
    return CUDA_SUCCESS;
}

/* `failed` of the first version: which copy was wrong, SIZE_MAX where it was none of them. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *firsts, size_t attribute_count,
                            size_t *failed, CUstream handle)
{
    struct CUstream_st *stream;
    size_t at = SIZE_MAX;
    CUresult result = resolve(handle, &stream);
    if (result == CUDA_SUCCESS && (!targets || !sources || !sizes || count == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = check_attributes(attributes, firsts, attribute_count, count);
    if (result == CUDA_SUCCESS)
        result = copy_all(targets, sources, sizes, count, &at, stream);
    if (failed && result != CUDA_SUCCESS)
        *failed = at;
    return result;
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes,
                               size_t count, CUmemcpyAttributes *attributes, size_t *firsts,
                               size_t attribute_count, CUstream stream)
{
    return cuMemcpyBatchAsync(targets, sources, sizes, count, attributes, firsts, attribute_count,
                              NULL, stream);
}

/* ---- in three dimensions --------------------------------------------------------------------- */

/* Extents are in elements: those of the array that takes part, else bytes. 0: not a good copy. */
static uint32_t element_bytes(const CUDA_MEMCPY3D_BATCH_OP *copy)
{
    uint32_t bytes[2] = {0, 0};
    const CUmemcpy3DOperand *operands[] = {&copy->dst, &copy->src};
    for (int i = 0; i < 2; i++) {
        if (operands[i]->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
            continue;
        if (array_check(operands[i]->op.array.array) != CUDA_SUCCESS)
            return 0;
        bytes[i] = operands[i]->op.array.array->element_bytes;
    }
    if (bytes[0] && bytes[1] && bytes[0] != bytes[1])
        return 0;
    return bytes[0] ? bytes[0] : bytes[1] ? bytes[1] : 1;
}

static CUresult describe(const CUmemcpy3DOperand *operand, const CUextent3D *extent,
                         uint32_t bytes_each, struct copy_operand *described)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        *described = (struct copy_operand){.type = CU_MEMORYTYPE_ARRAY,
                                           .array = operand->op.array.array,
                                           .x_bytes = operand->op.array.offset.x * bytes_each,
                                           .y = operand->op.array.offset.y,
                                           .z = operand->op.array.offset.z};
        return operand->op.array.offset.x > SIZE_MAX / bytes_each ? CUDA_ERROR_INVALID_VALUE
                                                                  : CUDA_SUCCESS;
    }
    size_t row_length = operand->op.ptr.rowLength, layer_height = operand->op.ptr.layerHeight;
    INVALID_IF(operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
               (row_length && row_length < extent->width) || row_length > SIZE_MAX / bytes_each ||
               (layer_height && layer_height < extent->height));
    *described = (struct copy_operand){.type = CU_MEMORYTYPE_UNIFIED,
                                       .address = operand->op.ptr.ptr,
                                       .pitch_bytes = row_length * bytes_each,
                                       .height = layer_height};
    return CUDA_SUCCESS;
}

static CUresult resolve_box(const CUDA_MEMCPY3D_BATCH_OP *copy, struct region *to,
                            struct region *from)
{
    uint32_t bytes_each = element_bytes(copy);
    struct copy_operand target, source;
    struct copy_extent extent = {copy->extent.width * bytes_each, copy->extent.height,
                                 copy->extent.depth};
    INVALID_IF(bytes_each == 0 || copy->srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
               copy->srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY || copy->extent.width == 0 ||
               copy->extent.height == 0 || copy->extent.depth == 0 ||
               copy->extent.width > SIZE_MAX / bytes_each);
    CHECK(describe(&copy->dst, &copy->extent, bytes_each, &target));
    CHECK(describe(&copy->src, &copy->extent, bytes_each, &source));
    CHECK(copy_resolve(&target, &extent, to));
    return copy_resolve(&source, &extent, from);
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed,
                              unsigned long long flags, CUstream handle)
{
    struct CUstream_st *stream;
    size_t at = SIZE_MAX;
    CUresult result = resolve(handle, &stream);
    if (result == CUDA_SUCCESS && (!copies || count == 0 || flags))
        result = CUDA_ERROR_INVALID_VALUE;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
            struct region to, from;
            at = i;
            result = resolve_box(&copies[i], &to, &from);
            if (result == CUDA_SUCCESS && pass == 1)
                result = copy_issue(stream, &to, &from, false);
        }
    if (failed && result != CUDA_SUCCESS)
        *failed = at;
    return result;
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *copies,
                                 unsigned long long flags, CUstream stream)
{
    return cuMemcpy3DBatchAsync(count, copies, NULL, flags, stream);
}

TWIN(cuMemcpyBatchAsync_ptsz,
     (CUdeviceptr * targets, CUdeviceptr *sources, size_t *sizes, size_t count,
      CUmemcpyAttributes *attributes, size_t *firsts, size_t attribute_count, size_t *failed,
      CUstream stream),
     cuMemcpyBatchAsync(targets, sources, sizes, count, attributes, firsts, attribute_count, failed,
                        OWN(stream)))
TWIN(cuMemcpyBatchAsync_v2_ptsz,
     (CUdeviceptr * targets, CUdeviceptr *sources, size_t *sizes, size_t count,
      CUmemcpyAttributes *attributes, size_t *firsts, size_t attribute_count, CUstream stream),
     cuMemcpyBatchAsync_v2(targets, sources, sizes, count, attributes, firsts, attribute_count,
                           OWN(stream)))
TWIN(cuMemcpy3DBatchAsync_ptsz,
     (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags,
      CUstream stream),
     cuMemcpy3DBatchAsync(count, copies, failed, flags, OWN(stream)))
TWIN(cuMemcpy3DBatchAsync_v2_ptsz,
     (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream),
     cuMemcpy3DBatchAsync_v2(count, copies, flags, OWN(stream)))
