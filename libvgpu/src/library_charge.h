/* What libraries take: code that belongs to no context, of which the driver puts a copy of the
 * variables into each context that uses it.
 *
 * The driver does so at a launch, where nothing may be added. So a library counts as *used* from
 * the first call that hands something of it out (a kernel, a module, a variable), with eager
 * loading from its load; a used library is charged in every context there is, and in every one
 * made later when it is made. A context that never runs its kernels is charged too early, and no
 * launch can find a pair of library and context that is not charged.
 *
 * One mutex guards the lists of libraries and contexts and which pairs are charged; nothing is
 * reserved and the driver is not called under it (lock order: context_lock, then this one, then
 * shards of the allocation map). Records are never freed, only used again: a program that uses a
 * library while it unloads it gets the driver's answer and no fault of ours. A forked child starts
 * empty. */
#ifndef VGPU_LIBRARY_CHARGE_H
#define VGPU_LIBRARY_CHARGE_H

#include <stdbool.h>

#include "charge.h"
#include "image_size.h"

struct library;

/* A library that is about to be loaded, and the driver's answer: `result` as it comes back, or
 * CUDA_ERROR_OUT_OF_MEMORY when what it took did not fit and it was unloaded again. */
CUresult library_charge_begin(struct library **library, const struct image_size *size);
CUresult library_charge_loaded(struct library *library, CUresult result, CUlibrary handle);

/* The library is used from now on. CUDA_ERROR_OUT_OF_MEMORY when it does not fit everywhere. */
CUresult library_charge_use(CUlibrary handle);

/* Around the making of a context on `device` (index in `limits`): reserves for the used libraries
 * before, hands the reservation to the new context after. _made takes the reservation in any case;
 * false when they do not fit after all, and the context must be ended. The end of a context is told
 * by charge_drop_context. */
CUresult library_charge_reserve(struct charge *charge, int device);
bool library_charge_made(struct charge *charge, CUcontext context);

#endif
