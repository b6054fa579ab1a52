/* What every hook begins with, and the rules for all code of the shim: it runs in somebody else's
 * process, on that program's threads, inside its calls.
 *
 *  1. Never end the process, print to stdout, install a signal handler, change a signal mask for
 *     longer than a call, or run a constructor. What goes wrong is an error code of the driver.
 *  2. Say what a person must know by log_line (log.h), on stderr and rationed, and not under the
 *     fork guard: stderr may be slow, and every fork would wait.
 *  3. Export nothing but the rows of hooks.def, dlsym and dlvsym.
 *  4. A launch that nothing delays reads no environment, takes no lock, makes no system call and
 *     logs nothing: one comparison where there is no cap (gate.h), one look-up and one
 *     atomic subtraction where it is prepaid (budget.h).
 *  5. No malloc and no free: a hook may run inside the program's own allocator. Records lie in
 *     anonymous mappings of their own and are used again.
 *  6. The environment is read once, at the start, and not at all where the runtime mounted this
 *     library (region.h). setenv only in cuInit, for MPS.
 *  7. Locks in the order of locks.h. No call of the driver that can wait under a lock, but for those
 *     that are named there; a lock under which a cancellation point is called is taken whole.
 *  8. Our own calls of the driver go through `real` (real.h), never through an exported name, and
 *     are made so that a stream capture of the program is not spoilt (capture_pause). Inside a
 *     capture nothing is measured, charged or delayed.
 *  9. Reserve before the driver is asked, write a use down before it begins, and cross it out after
 *     the driver has ended it: an error may charge too much for an instant, never too little.
 * 10. What a program has destroyed is not used again: events of ours end before their context does
 *     (throttle_forget_context), measurements before their stream (throttle_forget_stream), and a handle is taken out of the map before the driver frees it,
 *     since it may be given out again at once.
 * 11. The program's own variables are read once and written last: another thread may change them
 *     while the driver reads them.
 * 12. A forked child starts without slot, allocations or work in flight: what a module keeps is
 *     forgotten in fork.c.
 * 13. A program may leave an output out (output.h), and the driver says whether that is allowed.
 * 14. A program may close any descriptor and use its number: one that is kept open is compared with
 *     what it was before it is used (descriptor.h). */
#ifndef VGPU_HOOK_H
#define VGPU_HOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "driver/export.h"
#include "driver/real.h"
#include "hooks/output.h"

/* Whether the driver is there and has the function whose field of `real` this is, which is read once
 * the driver is loaded. It is, or the program could not have found the hook. */
static inline bool cuda_has(const void *field)
{
    return real_load_cuda() && *(void *const *)field != NULL;
}

/* The first line of a hook: ends it where the driver lacks the function. */
#define NEEDS(symbol) \
    do { \
        if (!cuda_has(&real.symbol)) \
            return CUDA_ERROR_NOT_INITIALIZED; \
    } while (0)

#endif
