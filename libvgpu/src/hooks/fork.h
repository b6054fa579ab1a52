/* What a fork does to the shim, for all its modules in one place.
 *
 * Before: the fork guard is taken, so that no child inherits the descriptor of a claim, nor a
 * half-made slot. In the parent it is given back. The child has none of the threads that held locks
 * or were in the middle of a change, none of the GPU's memory and no slot: every module forgets
 * what it knew and makes its locks usable again. The child claims a slot when it first needs one.
 *
 * A module with something to forget has a function for it, named `…_after_fork`, in its header and
 * in the list of fork.c. */
#ifndef VGPU_FORK_H
#define VGPU_FORK_H

#include <stdbool.h>

/* Has the handlers called from now on; once a process. False: the C library has no memory for it. */
bool fork_watch(void);

#endif
