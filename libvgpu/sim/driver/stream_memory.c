/*
 * Operations of a stream on words of memory: waits for a value, and writes of one. Each runs on a
 * thread of the driver when the stream gets there (stream_call), in order with the stream's other
 * work. A wait looks at the word again and again, sleeping between MIN_SLEEP_NS and MAX_SLEEP_NS;
 * it ends too when the memory is freed under it, where a device would fault. Neither takes device
 * time. During a capture they are refused: such graph nodes are not modelled.
 */
#include <stdlib.h>
#include <time.h>

#include "driver.h"
#include "twins.h"

#define MIN_SLEEP_NS 10000
#define MAX_SLEEP_NS 640000
#define MAX_BATCH 256
#define CONDITION_MASK 3u

struct operation {
    CUstreamBatchMemOpType type;
    CUdeviceptr address;
    uint64_t value;
    unsigned int flags;
};

struct batch {
    unsigned int count;
    struct operation operations[];
};

static bool is_wait(CUstreamBatchMemOpType type)
{
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static unsigned int word_bytes(CUstreamBatchMemOpType type)
{
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8
                                                                                             : 4;
}

static bool holds(const struct operation *operation)
{
    bool wide = word_bytes(operation->type) == 8;
    uint64_t value = operation->value;
    uint64_t word = wide ? __atomic_load_n((const uint64_t *)operation->address, __ATOMIC_ACQUIRE)
                         : __atomic_load_n((const uint32_t *)operation->address, __ATOMIC_ACQUIRE);
    switch (operation->flags & CONDITION_MASK) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return wide ? ~(word | value) != 0 : ~(uint32_t)(word | value) != 0;
    default: /* at least, in a circle */
        return wide ? (int64_t)(word - value) >= 0 : (int32_t)(uint32_t)(word - value) >= 0;
    }
}

static void wait_for(const struct operation *operation)
{
    struct timespec pause = {.tv_nsec = MIN_SLEEP_NS};
    while (memory_find(operation->address, word_bytes(operation->type), NULL) &&
           !holds(operation)) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < MAX_SLEEP_NS)
            pause.tv_nsec *= 2;
    }
}

static void write_word(const struct operation *operation)
{
    if (!memory_find(operation->address, word_bytes(operation->type), NULL))
        return;
    if (word_bytes(operation->type) == 8)
        __atomic_store_n((uint64_t *)operation->address, operation->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)operation->address, (uint32_t)operation->value,
                         __ATOMIC_RELEASE);
}

static void run_batch(void *argument)
{
    struct batch *batch = argument;
    for (unsigned int i = 0; i < batch->count; i++) {
        if (is_wait(batch->operations[i].type))
            wait_for(&batch->operations[i]);
        else
            write_word(&batch->operations[i]);
    }
    free(batch);
}

static CUresult check_operation(const struct operation *operation)
{
    struct allocation found;
    unsigned int bytes = word_bytes(operation->type);
    unsigned int allowed = is_wait(operation->type)
                               ? CONDITION_MASK | (unsigned int)CU_STREAM_WAIT_VALUE_FLUSH
                               : (unsigned int)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    if (operation->flags & ~allowed || operation->address % bytes != 0 ||
        !memory_find(operation->address, bytes, &found) || found.kind == ALLOCATION_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    /* Flushing remote writes is not supported (CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES). */
    return is_wait(operation->type) && operation->flags & CU_STREAM_WAIT_VALUE_FLUSH
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

/* Puts a batch onto a stream, which takes it over. */
static CUresult submit(CUstream handle, struct batch *batch)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    for (unsigned int i = 0; result == CUDA_SUCCESS && i < batch->count; i++)
        result = check_operation(&batch->operations[i]);
    if (result == CUDA_SUCCESS && stream->capture)
        result = capture_refuse(stream);
    if (result == CUDA_SUCCESS)
        result = stream_call(stream, run_batch, batch);
    if (result != CUDA_SUCCESS)
        free(batch);
    return result;
}

static CUresult submit_one(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address,
                           uint64_t value, unsigned int flags)
{
    DRIVER_CHECK();
    struct batch *batch = malloc(sizeof *batch + sizeof batch->operations[0]);
    if (!batch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    batch->count = 1;
    batch->operations[0] = (struct operation){type, address, value, flags};
    return submit(stream, batch);
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

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams *operations, unsigned int flags)
{
    DRIVER_CHECK();
    if (flags || count == 0 || count >= MAX_BATCH || !operations)
        return CUDA_ERROR_INVALID_VALUE;
    struct batch *batch = malloc(sizeof *batch + count * sizeof batch->operations[0]);
    if (!batch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    batch->count = 0;
    for (unsigned int i = 0; i < count; i++) {
        CUstreamBatchMemOpType type = operations[i].operation;
        bool on_word = is_wait(type) || type == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                       type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        if (type == CU_STREAM_MEM_OP_BARRIER) /* these run one after another as it is */
            continue;
        if (!on_word) {
            free(batch);
            return type == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES ? CUDA_ERROR_NOT_SUPPORTED
                                                                : CUDA_ERROR_INVALID_VALUE;
        }
        batch->operations[batch->count++] = (struct operation){
            type, operations[i].waitValue.address,
            word_bytes(type) == 8 ? operations[i].waitValue.value64 : operations[i].waitValue.value,
            operations[i].waitValue.flags};
    }
    return submit(stream, batch);
}

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
