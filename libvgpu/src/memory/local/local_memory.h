/* Local memory of a context: what threads keep out of registers, and their stacks. The driver holds
 * one piece for every thread that the device can have at once, as large as the stack limit says or
 * as the most that a function launched there needed, whichever came last to be more. It grows at a
 * launch, or where a graph is made executable, and shrinks when the stack limit is set.
 *
 * What it takes beyond what every context has from its beginning is one charge of the context, of
 * stack limit and launches together. A launch of a function that is pending (local_functions.h)
 * reserves what it needs more. NVML's figure of this process shows after the first such launches
 * whether the device takes it then. What took nothing is not charged; once that was seen twice, nothing
 * is reserved for functions that need no more. A larger one is judged again. Where nobody can tell, and
 * for growths of less than 64 MiB, what was computed stands.
 *
 * What a function needs is asked of the driver when it is handed out, which has loaded it by then. A
 * kernel of a library may not be loaded yet, and asking would load it: it is asked just before its
 * first launch on a device.
 *
 * All of it under the lock of contexts, which is not held across the launch or a question that may
 * load code. */
#ifndef VGPU_LOCAL_MEMORY_H
#define VGPU_LOCAL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/cap/launch.h"
#include "memory/ledger/charge.h"
#include "vgpu/cuda_api.h"

/* Around the launch of a function that is pending: CUDA_SUCCESS, or what the hook returns. */
CUresult local_memory_begin(struct local_growth *growth, const void *function, CUstream stream);
/* Around a call that may launch several in the current context, the most needing `bytes_a_thread`. */
CUresult local_memory_begin_graph(struct local_growth *growth, uint64_t bytes_a_thread);
/* Behind either, with what the driver said, which it returns. Does nothing where nothing was begun. */
CUresult local_memory_end(struct local_growth *growth, CUresult result);

/* A kernel of a library that is pending may have been launched in one of several contexts already:
 * nothing may be prepaid, or its launch in another one would not be looked at. */
bool local_memory_is_ambiguous(void);

/* ---- local_hand_out.c ---- */

/* The driver has handed out functions of a module, kernels of a library, a kernel's function. */
void local_memory_handed_out(const CUfunction *functions, unsigned int count, CUmodule module);
void local_memory_handed_out_kernels(const CUkernel *kernels, unsigned int count,
                                     CUlibrary library);
void local_memory_handed_out_function(CUfunction function, CUkernel kernel);
/* A module or library was unloaded. */
void local_memory_unloaded(const void *owner);

/* What a function or kernel of a graph needs on the current context's device. */
uint64_t local_memory_of(CUfunction function, CUkernel kernel);
/* Asks for what is noted, unless it was asked of that device before. */
uint64_t local_memory_ask(const void *noted, CUdevice ordinal, int device);

/* ---- under the lock of contexts ---- */

/* A context was made or seen for the first time; has ended. */
void local_memory_context_made(CUcontext context);
void local_memory_context_ended(CUcontext context);

/* What a noted function needs was found out, of `devices` (a bit each). */
void local_memory_learnt(const void *function, uint64_t bytes_a_thread, uint64_t devices);

/* The charge of a context, which its stack limit changes; NULL: it has none. Where it has one: what a
 * limit takes beyond the default, rounded as the device gives, UINT64_MAX where that is too much; and
 * the limit was set, to which local memory shrinks or grows. */
struct charge *local_memory_charge(CUcontext context);
uint64_t local_memory_cost(CUcontext context, uint64_t stack_bytes);
void local_memory_limit_set(CUcontext context, uint64_t stack_bytes);

/* For fork.c. */
void local_memory_after_fork(void);

#endif
