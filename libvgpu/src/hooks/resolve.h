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

/* Decides one lookup; `version` is dlvsym's, else NULL. Called by the thunks only. */
struct resolve_answer resolve_symbol(void *handle, const char *name, const char *version);

/* Returns the hook for a function the driver handed out for `name`, or that function itself, noted
 * where no row of hooks.def is it. */
void *resolve_replacement(const char *name, void *driver_function);

#endif
