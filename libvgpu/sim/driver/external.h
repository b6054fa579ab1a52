/*
 * Memory of other interfaces. A file descriptor stands for it: one that
 * cuMemExportToShareableHandle made, whose bytes count once for all who hold them; or any other
 * file that can be mapped, a memfd for instance, as the memory of an interface that is not
 * simulated. That of such a file counts for this process on the current context's device, at every
 * import again.
 *
 * What was imported is a piece as those of cuMemCreate, under vmm_mutex: it lives until it is
 * destroyed and every buffer and array over it is freed, and ends with its context.
 */
#ifndef VGPU_SIM_EXTERNAL_H
#define VGPU_SIM_EXTERNAL_H

#include "vmm.h"

/* Maps a part of external memory as an allocation of its context. */
CUresult external_map(CUexternalMemory memory, uint64_t offset, uint64_t bytes,
                      enum allocation_kind kind, CUdeviceptr *address);
/* Unmaps an allocation that is out of the map. */
void external_give_back(struct allocation *allocation);
void external_end_context(const struct CUctx_st *context);

#endif
