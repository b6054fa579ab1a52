/* Outputs of calls, which a program may leave out: NVIDIA's driver answers cuMemGetInfo(&free, NULL) with
 * CUDA_SUCCESS. Which outputs may be left out differs by call and by driver, so no hook decides that: each
 * passes on what it got.
 *
 * A hook that shows something looks at outputs through OUTPUT and ANSWER. A hook that keeps books by the
 * handle of what is made has nothing to keep without one: ALONE_WITHOUT leaves such a call to the driver
 * from the beginning, so that its answer is the driver's and not that a slice is full. Should a driver
 * make something all the same, it is charged as what only NVML sees (reconcile.h). */
#ifndef VGPU_OUTPUT_H
#define VGPU_OUTPUT_H

#include <stddef.h>

/* What the call wrote there; 0 where the program did not ask. */
#define OUTPUT(pointer) ((pointer) != NULL ? *(pointer) : (__typeof__(*(pointer)))0)

/* Writes what the program is to see in place of that. */
#define ANSWER(pointer, value) \
    do { \
        if ((pointer) != NULL) \
            *(pointer) = (value); \
    } while (0)

/* Ends a hook by the driver's own answer where the program left this out. */
#define ALONE_WITHOUT(pointer, call) \
    do { \
        if ((pointer) == NULL) \
            return real.call; \
    } while (0)

#endif
