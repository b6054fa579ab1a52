/* What libraries take: code that belongs to no context, of which the driver puts a copy of the
 * variables into each context that uses it.
 *
 * The driver does so at a launch, where nothing may be added. So a library counts as *used* from
 * the first call that hands something of it out (a kernel, a module, a variable), with eager
 * loading from its load; a used library is charged in every context there is, and in every one
 * made later when it is made (library_context.h). A context that never runs its kernels is charged
 * too early, and no launch can find a library in a context where it is not charged.
 *
 * A library that cannot be read is loaded into each context when it is first used, and measured.
 * Synchronised by library_book.h. */
#ifndef VGPU_LIBRARY_CHARGE_H
#define VGPU_LIBRARY_CHARGE_H

#include "code/library_book.h"

/* A library that is about to be loaded, and the driver's answer: `result` as it comes back, or
 * CUDA_ERROR_OUT_OF_MEMORY when what it took did not fit and it was unloaded again. */
CUresult library_charge_begin(struct library **library, const struct image_size *size);
CUresult library_charge_loaded(struct library *library, CUresult result, CUlibrary handle);

/* The library is used from now on. CUDA_ERROR_OUT_OF_MEMORY when it does not fit everywhere. */
CUresult library_charge_use(CUlibrary handle);

/* Charges `library` in one context; `at` is a copy of its record, made under the mutex. */
CUresult library_charge_pair(struct library *library, const struct member *at);

#endif
