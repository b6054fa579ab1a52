/* What fork.c needs of the hooks of memory that goes from process to process. */
#ifndef VGPU_HOOK_IPC_H
#define VGPU_HOOK_IPC_H

void ipc_after_fork(void);

#endif
