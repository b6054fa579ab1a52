/* Which functions are parts of a collective: kernels that wait on the GPU for kernels of other GPUs
 * or processes. If one of them waited, the others would spin, so they are charged and
 * never wait once a part has been launched.
 *
 * Told by name: of NCCL `ncclDevKernel…` and `ncclKernel…`, of NVSHMEM `nvshmem…`, plain or as a
 * C++ compiler writes them. The driver is asked once a function; the answer is kept in a table of
 * words that each hold a function and its answer, so threads need no lock: racing ones store the
 * same. Where the table is full the word in the way is replaced, and asked for again. */
#ifndef VGPU_COLLECTIVE_H
#define VGPU_COLLECTIVE_H

#include <stdbool.h>

#include "vgpu/cuda_api.h"

/* True for the name of such a kernel; NULL is none. */
bool collective_is_name(const char *name);

/* True when `function`, a CUfunction or a CUkernel in its place, is one. A function whose name the
 * driver cannot tell (it must be of CUDA 12.3 or later) is none. Never for what is no function. */
bool collective_is_function(CUfunction function);

/* Code was unloaded: other functions may get the same handles. */
void collective_forget(void);

#endif
