/* Functions whose launch may grow the local memory of a context (local_memory.h): noted when the
 * driver hands them out, since a launch that passes the gate looks at no function. Kernels of
 * libraries are all noted, functions of modules only where they need any. One is *pending* while its launch may still grow a context; while any is,
 * uncapped launches look for theirs here, some tens of instructions, and capped ones need no look:
 * what is pending has no price, so it is not prepaid.
 *
 * Written under the lock of contexts. Launches read without: a table that grows is replaced, and the
 * one before stays mapped. A forked child starts empty. */
#ifndef VGPU_LOCAL_FUNCTIONS_H
#define VGPU_LOCAL_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/cuda_api.h"

struct local_function {
    uintptr_t handle; /* atomic */
    bool is_pending;  /* atomic */
    uint64_t asked;   /* of a kernel: a bit for each device (in `limits`) that it was asked of */
    uint64_t bytes_a_thread; /* the most that was answered */
    const void *owner;       /* the module or library that it ends with */
    CUcontext context;       /* NULL: a kernel of a library, which can be launched in all */
};

/* NULL: it was not noted. Not to be kept across another note. */
struct local_function *local_functions_find(const void *function);

/* The one that was noted with that owner and context, else a new one; NULL: no host memory. */
struct local_function *local_functions_note(const void *function, const void *owner,
                                            CUcontext context);

void local_functions_set_pending(struct local_function *function, bool is_pending);

void local_functions_each(void (*visit)(struct local_function *function));

/* The owner or the context has ended; NULL: none. */
void local_functions_forget(const void *owner, CUcontext context);

/* Any at all; this one. */
bool local_functions_any_pending(void);
bool local_functions_is_pending(const void *function);

/* For fork.c. */
void local_functions_after_fork(void);

#endif
