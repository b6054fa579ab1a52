/* What fork.c needs of the hooks of imported memory. */
#ifndef VGPU_HOOK_EXTERNAL_H
#define VGPU_HOOK_EXTERNAL_H

void external_after_fork(void);

#endif
