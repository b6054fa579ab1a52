/* How programs reach the hooks when they do not link to the driver: dlsym, dlvsym and
 * cuGetProcAddress. A name that is not ours leaves dlsym by a tail jump to the loader's own, so
 * that RTLD_NEXT and RTLD_DEFAULT stay relative to the caller at every optimisation level. */
#ifndef VGPU_RESOLVE_H
#define VGPU_RESOLVE_H

#include <stdint.h>

/* In rax and rdx, for the thunks: whether we answer, and with what. */
struct resolve_answer {
    void *address;
    uint64_t is_ours;
};

/* Decides one lookup. Called by the thunks only. */
struct resolve_answer resolve_symbol(void *handle, const char *name);

/* Returns the hook for a function the driver handed out, or that function itself. */
void *resolve_replacement(void *driver_function);

#endif
