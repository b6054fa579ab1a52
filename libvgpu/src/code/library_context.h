/* The used libraries (library_charge.h) in a new context: reserved before the driver makes it,
 * since it may load them with it, and charged to it afterwards. The end of a context is told by
 * charge_drop_context. Called under context_lock. */
#ifndef VGPU_LIBRARY_CONTEXT_H
#define VGPU_LIBRARY_CONTEXT_H

#include <stdbool.h>

#include "memory/charge.h"

/* `device` is an index in `limits`. */
CUresult library_context_reserve(struct charge *charge, int device);

/* Takes the reservation in any case. False when the libraries do not fit after all: the context
 * must be ended, and then its charges dropped. */
bool library_context_made(struct charge *charge, CUcontext context);

#endif
