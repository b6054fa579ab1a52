/* What the hooks of contexts share: the accounts of primary contexts. */
#ifndef VGPU_HOOK_CONTEXT_H
#define VGPU_HOOK_CONTEXT_H

#include "memory/contexts/context_charge.h"

#define CONTEXT_DEVICES 64 /* CUDA devices whose primary context is accounted */

/* For fork.c. */
void contexts_after_fork(void);

/* All below: under the lock of contexts (context_charge.h). */

/* Retains the primary context and charges it if it is the first to. */
CUresult primary_retain(CUcontext *context, CUdevice device);

/* Gives such a reference back, and the charge with the last one. */
void primary_give_back(CUdevice device);

/* After something that may have ended primary contexts: drops the charges of those that did. */
void primary_settle(CUdevice device);
void primary_settle_all(void);

/* The primary context of a device of the slice (an index in `limits`); NULL when there is none. */
CUcontext primary_of(int index);

#endif
