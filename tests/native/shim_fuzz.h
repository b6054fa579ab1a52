/* A program that takes and gives device memory in every way there is, at random, valid and not:
 * what its files share. Each family keeps its own handles, ended ones too, and is called by number.
 *
 * Every call is named with what it answered, in a line of the trace, so that the same seed gives
 * the same trace wherever nothing is refused. After every step the ledger of the slice must not be
 * below the books of the GPUs, and after everything has come to rest both must be equal. */
#ifndef VGPU_TEST_SHIM_FUZZ_H
#define VGPU_TEST_SHIM_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgpu/cuda_api.h"
#include "vgpu/cuda_array.h"
#include "vgpu/cuda_calls.h"
#include "vgpu/cuda_graph.h"
#include "vgpu/cuda_vmm.h"

#define GPUS 2
#define GRANULE ((size_t)2 << 20)
#define STREAMS 5
#define UNTOUCHED 0x5a5a5a5a5a5a5a5aull
#define COUNT(array) (sizeof(array) / sizeof *(array))

struct fuzz {
    uint64_t random;
    bool is_refused_checked; /* whether a result must stay untouched by a refusal */
    CUcontext primary[GPUS];
    CUcontext made[4]; /* created ones; ended ones stand on */
    CUstream streams[STREAMS];
};

extern struct fuzz fuzz;

static inline uint64_t roll(uint64_t sides)
{
    fuzz.random ^= fuzz.random << 13;
    fuzz.random ^= fuzz.random >> 7;
    fuzz.random ^= fuzz.random << 17;
    return (fuzz.random >> 11) % sides;
}

static inline bool one_in(uint64_t sides)
{
    return roll(sides) == 0;
}

#define ANY(array) (&(array)[roll(COUNT(array))])

/* Makes a call, writes it down, and gives its answer. */
#define SAY(call) fuzz_said(#call, (int)(call))
int fuzz_said(const char *call, int result);
/* The same where the call is no driver call, or its code says nothing of this program. */
void fuzz_fail(const char *why);

/* A size: mostly small, sometimes one on which sums overflow. */
size_t fuzz_bytes(size_t most);
CUstream fuzz_stream(void);
/* A result is as it was before a refusal. */
void fuzz_untouched(int result, uint64_t value);

/* Keeps a handle that was made, and ends the one that it takes the place of. */
#define KEEP(result, made, place, end) \
    do { \
        fuzz_untouched(result, (uint64_t)(made)); \
        if ((result) != CUDA_SUCCESS) \
            break; \
        if (*(place)) \
            SAY(end(*(place))); \
        *(place) = made; \
    } while (0)

void memory_step(void);
void memory_forget(void);
void pool_step(void);
void pool_rest(void);
CUmemoryPool pool_any(void);
void graph_step(void);
void graph_rest(void);
void array_step(void);
void array_rest(void);
void array_forget(void);
void vmm_step(void);
void vmm_rest(void);
CUmemGenericAllocationHandle vmm_any(void);
void ipc_begin(void);
void ipc_step(void);
void ipc_rest(void);
CUdeviceptr memory_any(void);
void code_step(void);
void context_step(void);
void context_rest(void);

#endif
