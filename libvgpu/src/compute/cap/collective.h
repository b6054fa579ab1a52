/* Which functions are parts of a collective: kernels that wait on the GPU for kernels of other GPUs or processes. If
 * one of them waited for its cap, the others would spin. So they are charged and not held (collective_debt.h). An
 * executable graph with such a kernel is treated the same.
 *
 * Functions are told by name (collective_names.c). The name is known where the driver hands a function out by it, also
 * of drivers that tell none; else the driver is asked at the first launch. It tells names from CUDA 12.3 on.
 *
 * Answers are kept in a table of words that each hold a handle and an answer. It is read without a lock and written
 * under one. Calls that hand out a function, or make a graph executable, write its answer anew, since handles are
 * reused. */
#ifndef VGPU_COLLECTIVE_H
#define VGPU_COLLECTIVE_H

#include <stdbool.h>

#include "vgpu/cuda_api.h"

/* True for the name of such a kernel, plain or as a C++ compiler writes it; false for NULL. */
bool collective_is_name(const char *name);

/* A function, or a kernel of a library, was handed out. NULL: without a name, so the driver is asked when that matters. */
void collective_named(const void *function, const char *name);

/* The same where it is known what it is; and an executable graph was made, changed, or is about to be destroyed. */
void collective_keep(const void *handle, bool is_collective);

/* True when `function`, a CUfunction or a CUkernel in its place, is one. A function without a name is none. Never for
 * what is no function. */
bool collective_is_function(CUfunction function);

/* The same of a kernel node, which names the one or the other. */
static inline bool collective_is_node(CUfunction function, CUkernel kernel)
{
    return collective_is_function(function != NULL ? function : (CUfunction)kernel);
}

/* The same of anything that launches are told by, without a question. */
bool collective_is_known(const void *handle);

/* For fork.c. */
void collective_after_fork(void);

#endif
