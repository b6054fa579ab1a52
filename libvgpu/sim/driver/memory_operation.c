/*
 * Waits for a word of memory to have a value, and writes of one. They run on a thread of the
 * driver. A wait looks at the word again and again, sleeping between MIN_SLEEP_NS and MAX_SLEEP_NS;
 * it ends too when the memory is freed under it, where a device would fault, and with its context.
 * Neither takes device time. A word is touched under memory_mutex, so that it is not unmapped
 * meanwhile.
 */
#include "memory_operation.h"

#include <time.h>

#define MIN_SLEEP_NS 10000
#define MAX_SLEEP_NS 640000
#define CONDITION_MASK 3u

static bool is_wait(CUstreamBatchMemOpType type)
{
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_write(CUstreamBatchMemOpType type)
{
    return type == CU_STREAM_MEM_OP_WRITE_VALUE_32 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool is_wide(const CUstreamBatchMemOpParams *operation)
{
    return operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
           operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool is_there(const CUstreamBatchMemOpParams *operation, struct allocation *found)
{
    return memory_find(operation->waitValue.address, is_wide(operation) ? 8 : 4, found);
}

/* Whether a wait is over. */
static bool holds_locked(const CUstreamBatchMemOpParams *operation)
{
    bool wide = is_wide(operation);
    CUdeviceptr address = operation->waitValue.address;
    uint64_t value = wide ? operation->waitValue.value64 : operation->waitValue.value;
    uint64_t word = wide ? __atomic_load_n((const uint64_t *)address, __ATOMIC_ACQUIRE)
                         : __atomic_load_n((const uint32_t *)address, __ATOMIC_ACQUIRE);
    switch (operation->waitValue.flags & CONDITION_MASK) {
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

static bool is_there_locked(const CUstreamBatchMemOpParams *operation)
{
    return memory_find_locked(operation->waitValue.address, is_wide(operation) ? 8 : 4) != NULL;
}

static bool is_over(const CUstreamBatchMemOpParams *operation)
{
    pthread_mutex_lock(&memory_mutex);
    bool over = !is_there_locked(operation) || holds_locked(operation);
    pthread_mutex_unlock(&memory_mutex);
    return over;
}

static void wait_for(const CUstreamBatchMemOpParams *operation)
{
    struct timespec pause = {.tv_nsec = MIN_SLEEP_NS};
    while (!is_over(operation) && !stream_call_is_cut_short()) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < MAX_SLEEP_NS)
            pause.tv_nsec *= 2;
    }
}

static void write_word_locked(const CUstreamBatchMemOpParams *operation)
{
    CUdeviceptr address = operation->waitValue.address;
    if (!is_there_locked(operation))
        return;
    if (is_wide(operation))
        __atomic_store_n((uint64_t *)address, operation->waitValue.value64, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)address, operation->waitValue.value, __ATOMIC_RELEASE);
}

static void write_word(const CUstreamBatchMemOpParams *operation)
{
    pthread_rwlock_rdlock(&memory_bytes_lock); /* an export would lose it */
    pthread_mutex_lock(&memory_mutex);
    write_word_locked(operation);
    pthread_mutex_unlock(&memory_mutex);
    pthread_rwlock_unlock(&memory_bytes_lock);
}

void memory_operations_run(const CUstreamBatchMemOpParams *operations, unsigned int count)
{
    for (unsigned int i = 0; i < count; i++)
        if (is_wait(operations[i].operation))
            wait_for(&operations[i]);
        else if (is_write(operations[i].operation))
            write_word(&operations[i]);
}

static CUresult check(const CUstreamBatchMemOpParams *operation)
{
    struct allocation found;
    bool wait = is_wait(operation->operation);
    if (operation->operation == CU_STREAM_MEM_OP_BARRIER) /* they run one by one as it is */
        return CUDA_SUCCESS;
    REFUSE_IF(operation->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES,
              CUDA_ERROR_NOT_SUPPORTED); /* CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES */
    INVALID_IF(!wait && !is_write(operation->operation));
    unsigned int allowed = wait ? CONDITION_MASK | (unsigned int)CU_STREAM_WAIT_VALUE_FLUSH
                                : (unsigned int)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    INVALID_IF(operation->waitValue.flags & ~allowed ||
               operation->waitValue.address % (is_wide(operation) ? 8 : 4) ||
               !is_there(operation, &found) || allocation_is_managed(&found));
    return wait && operation->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

CUresult memory_operations_check(const CUstreamBatchMemOpParams *operations, unsigned int count)
{
    INVALID_IF(!operations || count == 0 || count >= MEMORY_OPERATIONS_MOST);
    CUresult result = CUDA_SUCCESS;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check(&operations[i]);
    return result;
}
