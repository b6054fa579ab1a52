/*
 * What a context has of its device besides its allocations: itself, its streams, local memory, the
 * printf buffer, the malloc heap, code that is loaded at a first launch. What is taken stays until
 * the context ends, where nothing else is said.
 *
 * One mutex in context_memory.c guards it, taken before memory_mutex and never held across a wait.
 */
#ifndef VGPU_SIM_CONTEXT_MEMORY_H
#define VGPU_SIM_CONTEXT_MEMORY_H

#include "driver.h"

/* context.c: a context that is part of a green one, which it makes current. */
CUresult context_create_green(CUcontext *context, unsigned int flags, CUdevice ordinal);
/* What the context itself takes. */
uint64_t context_own_bytes(const struct driver_device *device, bool green);
/* Has a buffer of the context be so large. Never the old and the new one at once. */
CUresult context_buffer_resize(struct CUctx_st *context, enum context_buffer buffer,
                               uint64_t bytes);
/* Stacks of that size for all threads that the device holds, less what those of the default size
 * take, which is part of the context itself. */
CUresult context_resize_stacks(struct CUctx_st *context, uint64_t stack_bytes);
/* One stream more. Under driver.mutex. */
CUresult context_begin_stream(struct CUctx_st *context);
void context_end_stream(const struct CUstream_st *stream);
/* What code takes that a module loads only now, and what a function needs to run. */
CUresult context_load_code(struct CUctx_st *context, struct CUfunc_st *function);
CUresult context_prepare_function(struct CUctx_st *context, struct CUfunc_st *function);
/* The module is unloaded, while its context lives. */
void context_unload_code(struct CUmod_st *module);

#endif
