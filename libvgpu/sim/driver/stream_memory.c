/* Operations of a stream on words of memory: each batch runs on a thread of the driver when the
 * stream gets there (stream_call), in order with the stream's other work. */
#include <stdlib.h>
#include <string.h>

#include "memory_operation.h"
#include "twins.h"

struct batch {
    unsigned int count;
    CUstreamBatchMemOpParams operations[];
};

static void run_batch(void *argument)
{
    struct batch *batch = argument;
    memory_operations_run(batch->operations, batch->count);
    free(batch);
}

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned int count,
                               CUstreamBatchMemOpParams *operations, unsigned int flags)
{
    RESOLVE_STREAM(stream, handle);
    CHECK(flags ? CUDA_ERROR_INVALID_VALUE : memory_operations_check(operations, count));
    if (stream_capture(stream))
        return capture_add_batch(stream, operations, count);
    struct batch *batch = malloc(sizeof *batch + count * sizeof batch->operations[0]);
    REFUSE_IF(!batch, CUDA_ERROR_OUT_OF_MEMORY);
    batch->count = count;
    memcpy(batch->operations, operations, count * sizeof batch->operations[0]);
    CUresult result = stream_call(stream, run_batch, batch);
    if (result != CUDA_SUCCESS)
        free(batch);
    return result;
}

static CUresult submit_one(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address,
                           uint64_t value, unsigned int flags)
{
    CUstreamBatchMemOpParams operation = {.operation = type};
    operation.waitValue.address = address;
    operation.waitValue.value64 = value; /* the narrow value is its lower half */
    operation.waitValue.flags = flags;
    return cuStreamBatchMemOp_v2(stream, 1, &operation, 0);
}

/* ---- entry points ---------------------------------------------------------------------------- */

/* The first version of each had to be switched on in the kernel module; else it is the second. */
#define VALUE_ENTRY(name, type, value_type) \
    CUresult name##_v2(CUstream stream, CUdeviceptr address, value_type value, unsigned int flags) \
    { \
        return submit_one(stream, type, address, value, flags); \
    } \
    CUresult name(CUstream stream, CUdeviceptr address, value_type value, unsigned int flags) \
    { \
        return submit_one(stream, type, address, value, flags); \
    } \
    TWIN(name##_ptsz, \
         (CUstream stream, CUdeviceptr address, value_type value, unsigned int flags), \
         name(OWN(stream), address, value, flags)) \
    TWIN(name##_v2_ptsz, \
         (CUstream stream, CUdeviceptr address, value_type value, unsigned int flags), \
         name##_v2(OWN(stream), address, value, flags))

VALUE_ENTRY(cuStreamWaitValue32, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t)
VALUE_ENTRY(cuStreamWaitValue64, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t)
VALUE_ENTRY(cuStreamWriteValue32, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t)
VALUE_ENTRY(cuStreamWriteValue64, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t)

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams *operations, unsigned int flags)
{
    return cuStreamBatchMemOp_v2(stream, count, operations, flags);
}

TWIN(cuStreamBatchMemOp_ptsz,
     (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
      unsigned int flags),
     cuStreamBatchMemOp(OWN(stream), count, operations, flags))
TWIN(cuStreamBatchMemOp_v2_ptsz,
     (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,
      unsigned int flags),
     cuStreamBatchMemOp_v2(OWN(stream), count, operations, flags))
