/*
 * Allocations whose bytes other processes map. At its first export an allocation's private pages
 * are replaced, in place, by a file of shared memory; what goes to the other process names the
 * exporter's descriptor of that file, which is opened through /proc. The exporter's death or free
 * ends only that way in: whoever has the bytes open holds the record that counts them (core/shared.c).
 *
 * An allocation's shared_bytes are set once, under memory_bytes_lock as a writer and memory_mutex,
 * and belong to it until its end.
 */
#ifndef VGPU_SIM_IPC_H
#define VGPU_SIM_IPC_H

#include "shareable.h"

struct shared_bytes {
    struct driver_device *device;
    uint64_t identifier;        /* of the record */
    uint64_t offset;            /* of what was opened, in the file of a block */
    struct shareable_file file; /* no descriptor where another process exported it */
    unsigned int opened;        /* how often cuIpcOpenMemHandle gave it out here */
};

/* What another process needs to open an allocation, in the 64 bytes of the API's structures. */
struct ipc_handle {
    uint32_t magic;
    uint32_t pid;
    uint64_t machine; /* digest of its identifier */
    uint64_t inode;
    uint64_t shared_id;
    uint64_t bytes;
    uint64_t pool; /* identifier of the pool it is from; 0: none */
    uint32_t filesystem;
    int32_t descriptor;
    uint32_t device; /* index on the machine */
    uint32_t offset; /* in the file, which holds all of a block (block.h) */
};
_Static_assert(sizeof(struct ipc_handle) == CU_IPC_HANDLE_SIZE, "handles have a size of the API");

/* Exports the allocation of that kind which holds `address`. */
CUresult ipc_export(uint64_t address, enum allocation_kind kind, struct ipc_handle *handle);
/* Maps what a handle names as an allocation of `kind` of a context, or of a pool of this process.
 * CUDA_ERROR_INVALID_HANDLE: nothing is there any more, or never was on this machine. */
CUresult ipc_open(const struct ipc_handle *handle, enum allocation_kind kind,
                  struct CUctx_st *context, struct CUmemPoolHandle_st *pool, CUdeviceptr *address);
struct driver_device *ipc_device(const struct ipc_handle *handle);
/* Unmaps an allocation that was exported or opened, and lets go of its record. */
void ipc_give_back(struct allocation *allocation);
/* The same where the bytes are unmapped already. */
void ipc_end_shared(struct shared_bytes *shared);

#endif
