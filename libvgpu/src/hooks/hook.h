/* What every hook begins with. */
#ifndef VGPU_HOOK_H
#define VGPU_HOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "hooks/export.h"
#include "hooks/real.h"

/* Whether the driver is there and has the function whose field of `real` this is, which is read once
 * the driver is loaded. It is, or the program could not have found the hook. */
static inline bool cuda_has(const void *field)
{
    return real_load_cuda() && *(void *const *)field != NULL;
}

#endif
