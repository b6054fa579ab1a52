/* Kernels that meet a peer on the device, as those of collectives do. One named `meet_peer` (also with something in
 * front) takes the addresses of its own word and of a peer's, of 32 bits each. When it begins it adds 1 to its own.
 * Then it keeps the device until the peer's is as great. The words are touched by a thread of the driver. */
#include <stdlib.h>

#include "memory_operation.h"

#define AFTERWARDS_NS 2000

enum { OWN, PEER, WORDS };

static void meet(void *argument)
{
    CUstreamBatchMemOpParams *operations = argument;
    cuuint32_t round =
        __atomic_load_n((const cuuint32_t *)operations[OWN].waitValue.address, __ATOMIC_ACQUIRE) +
        1;
    operations[OWN].waitValue.value = operations[PEER].waitValue.value = round;
    memory_operations_run(operations, WORDS);
    free(operations);
}

CUresult meeting_launch(struct CUstream_st *stream, const struct CUfunc_st *function,
                        const struct launch *launch, uint32_t parts)
{
    CUstreamBatchMemOpParams *operations = calloc(WORDS, sizeof *operations);
    REFUSE_IF(!operations, CUDA_ERROR_OUT_OF_MEMORY);
    operations[OWN].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[PEER].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < WORDS && result == CUDA_SUCCESS; i++) {
        uint64_t address = 0;
        result = launch_read_argument(function, launch, i, &address);
        operations[i].waitValue.address = address; /* of a write it lies at the same place */
    }
    if (result == CUDA_SUCCESS)
        result = memory_operations_check(operations, WORDS);
    struct sim_submission begin = {.cost_ns = 1, .kind = SIM_OPERATION_EVENT}; /* has its turn */
    struct sim_submission kernel = {
        .cost_ns = AFTERWARDS_NS, .kind = SIM_OPERATION_SPIN, .kernels = 1, .parts = parts};
    if (result == CUDA_SUCCESS)
        result = stream_call_between(stream, &begin, &kernel, meet, operations);
    if (result != CUDA_SUCCESS)
        free(operations);
    return result;
}
