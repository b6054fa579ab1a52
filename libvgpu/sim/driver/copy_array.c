/* Copies between one-dimensional arrays and other memory: a row each, at an offset in bytes. */
#include "array.h"
#include "twins.h"

static struct copy_operand in_array(CUarray array, uint64_t offset_bytes)
{
    return (struct copy_operand){
        .type = CU_MEMORYTYPE_ARRAY, .array = array, .x_bytes = offset_bytes};
}

static struct copy_operand at(CUmemorytype type, uint64_t address)
{
    return (struct copy_operand){.type = type, .address = address};
}

static bool is_flat(const struct copy_operand *operand)
{
    return operand->type != CU_MEMORYTYPE_ARRAY ||
           (array_check(operand->array) == CUDA_SUCCESS && operand->array->form.Height <= 1 &&
            operand->array->form.Depth == 0);
}

static CUresult copy_row(struct copy_operand target, struct copy_operand source, size_t bytes,
                         CUstream handle, bool wait)
{
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!is_flat(&target) || !is_flat(&source));
    struct copy_extent extent = {bytes, 1, 1};
    return copy_between(stream, &target, &source, &extent, wait);
}

CUresult cuMemcpyDtoA_v2(CUarray target, size_t offset, CUdeviceptr source, size_t bytes)
{
    return copy_row(in_array(target, offset), at(CU_MEMORYTYPE_DEVICE, source), bytes, NULL, true);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr target, CUarray source, size_t offset, size_t bytes)
{
    return copy_row(at(CU_MEMORYTYPE_DEVICE, target), in_array(source, offset), bytes, NULL, true);
}

CUresult cuMemcpyHtoA_v2(CUarray target, size_t offset, const void *source, size_t bytes)
{
    return copy_row(in_array(target, offset), at(CU_MEMORYTYPE_HOST, (uint64_t)source), bytes, NULL,
                    true);
}

CUresult cuMemcpyAtoH_v2(void *target, CUarray source, size_t offset, size_t bytes)
{
    return copy_row(at(CU_MEMORYTYPE_HOST, (uint64_t)target), in_array(source, offset), bytes, NULL,
                    true);
}

CUresult cuMemcpyAtoA_v2(CUarray target, size_t target_offset, CUarray source, size_t source_offset,
                         size_t bytes)
{
    return copy_row(in_array(target, target_offset), in_array(source, source_offset), bytes, NULL,
                    true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray target, size_t offset, const void *source, size_t bytes,
                              CUstream stream)
{
    return copy_row(in_array(target, offset), at(CU_MEMORYTYPE_HOST, (uint64_t)source), bytes,
                    stream, false);
}

CUresult cuMemcpyAtoHAsync_v2(void *target, CUarray source, size_t offset, size_t bytes,
                              CUstream stream)
{
    return copy_row(at(CU_MEMORYTYPE_HOST, (uint64_t)target), in_array(source, offset), bytes,
                    stream, false);
}

TWIN(cuMemcpyDtoA_v2_ptds, (CUarray target, size_t offset, CUdeviceptr source, size_t bytes),
     cuMemcpyDtoA_v2(target, offset, source, bytes))
TWIN(cuMemcpyAtoD_v2_ptds, (CUdeviceptr target, CUarray source, size_t offset, size_t bytes),
     cuMemcpyAtoD_v2(target, source, offset, bytes))
TWIN(cuMemcpyHtoA_v2_ptds, (CUarray target, size_t offset, const void *source, size_t bytes),
     cuMemcpyHtoA_v2(target, offset, source, bytes))
TWIN(cuMemcpyAtoH_v2_ptds, (void *target, CUarray source, size_t offset, size_t bytes),
     cuMemcpyAtoH_v2(target, source, offset, bytes))
TWIN(cuMemcpyAtoA_v2_ptds,
     (CUarray target, size_t target_offset, CUarray source, size_t source_offset, size_t bytes),
     cuMemcpyAtoA_v2(target, target_offset, source, source_offset, bytes))
TWIN(cuMemcpyHtoAAsync_v2_ptsz,
     (CUarray target, size_t offset, const void *source, size_t bytes, CUstream stream),
     cuMemcpyHtoAAsync_v2(target, offset, source, bytes, OWN(stream)))
TWIN(cuMemcpyAtoHAsync_v2_ptsz,
     (void *target, CUarray source, size_t offset, size_t bytes, CUstream stream),
     cuMemcpyAtoHAsync_v2(target, source, offset, bytes, OWN(stream)))
