/*
 * Memory of a process: its allocations and the map of them, and the pools.
 *
 * allocation_map.c keeps the map, mapping.c the host memory that stands for device memory, memory.c
 * charges, allocates and frees. What is marked locked needs memory_mutex.
 */
#ifndef VGPU_SIM_MEMORY_H
#define VGPU_SIM_MEMORY_H

#include "driver.h"

enum allocation_kind {
    ALLOCATION_DEVICE,
    ALLOCATION_MANAGED,
    ALLOCATION_POOL,
    ALLOCATION_ARRAY,       /* behind a CUDA array, whose users never see the address */
    ALLOCATION_OWN,         /* a module's variable: not the program's to free */
    ALLOCATION_OWN_MANAGED, /* a managed variable */
    ALLOCATION_HOST,
    ALLOCATION_REGISTERED,
    ALLOCATION_MAPPED,     /* one cuMemMap that somebody may access (vmm_range.c) */
    ALLOCATION_OPENED,     /* of another process, by cuIpcOpenMemHandle */
    ALLOCATION_EXTERNAL,   /* a buffer over memory of another interface */
    ALLOCATION_POOL_OPENED /* of another process, by cuMemPoolImportPointer */
};
#define ALLOCATION_SYNC_MEMOPS 0x100u /* in `flags`, besides those of cuMemHostAlloc */
struct shared_bytes;
struct block;
struct managed_advice;
struct physical;
struct allocation {
    uint64_t address;
    uint64_t bytes;
    uint64_t charged_bytes; /* by itself, besides its block */
    enum allocation_kind kind;
    struct CUctx_st *context;
    struct CUmemPoolHandle_st *pool;
    unsigned long long id;
    struct block *block;      /* what it lies in (block.h); NULL: a mapping of its own */
    struct backing backing;   /* the one in the map, not in a copy of it; without a block */
    struct backing *of_piece; /* of a MAPPED one on a device: that of its physical memory */
    unsigned int flags;
    struct shared_bytes *shared;   /* other processes have it too (ipc.h); NULL: none */
    struct physical *external;     /* what a buffer or array lies in (external.h); NULL: itself */
    struct managed_advice *advice; /* managed.c */
    uint64_t *touched;             /* the same: its blocks that are charged */
    struct allocation *next, *previous;
};
extern pthread_mutex_t memory_mutex;
/* Whatever moves bytes of device memory holds this as a reader while it does; an export, which puts
 * a shared mapping into the place of a private one, as a writer. */
extern pthread_rwlock_t memory_bytes_lock;
/* Makes the process a client of the device, which a context does otherwise. */
int memory_attach(struct driver_device *device);
uint64_t memory_round(uint64_t bytes);
struct allocation *memory_find_locked(uint64_t address, uint64_t bytes);
struct allocation *memory_find_byte_locked(uint64_t address);
/* Takes device memory, giving up what pools keep unused if that helps. */
int memory_charge(struct driver_device *device, uint64_t bytes);
/* Its two halves: whether it is to fail on request, and the memory. The process is a client. */
bool memory_fails(struct driver_device *device);
int memory_reserve(struct driver_device *device, uint64_t bytes);
CUresult memory_allocate(struct CUctx_st *context, uint64_t bytes, enum allocation_kind kind,
                         CUdeviceptr *address);
/* pointer.c: what freeing an address must answer before it is looked at as an allocation */
CUresult memory_check_free(uint64_t address);
/* Frees what a program may free. The first waits for functions in streams, which may use the memory
 * (stream_calls_settle). */
CUresult memory_free(uint64_t address, bool host);
CUresult memory_free_now(uint64_t address, bool host);
bool memory_is_freeable(const struct allocation *allocation, bool host);
/* Finds the allocation that holds [address, address + bytes), or the first of several mappings. */
bool memory_find(uint64_t address, uint64_t bytes, struct allocation *found);
/* A context takes its memory along; memory of pools and handles belongs to the device and stays. */
void memory_free_context(struct CUctx_st *context);
struct allocation *memory_take_of_context(const struct CUctx_st *context); /* out of the map */
struct allocation *memory_insert(uint64_t address, uint64_t bytes, uint64_t charged_bytes,
                                 enum allocation_kind kind, struct CUctx_st *context,
                                 struct CUmemPoolHandle_st *pool);
bool memory_insert_piece(uint64_t address, uint64_t bytes, enum allocation_kind kind,
                         struct CUctx_st *context, struct block *block);
struct allocation *memory_remove_locked(uint64_t address);
/* What a context opened of another process (ipc.c). */
struct allocation *memory_find_opened_locked(const struct CUctx_st *context,
                                             const struct driver_device *device, uint64_t shared_id,
                                             uint64_t offset);
bool memory_insert_mapped(uint64_t address, uint64_t bytes, struct CUctx_st *context,
                          struct backing *of_piece);
bool memory_insert_external(uint64_t address, uint64_t bytes, enum allocation_kind kind,
                            struct CUctx_st *context, struct physical *external);
/* Whether it is memory of the host, which no device has; and the device that has it, or NULL. */
bool allocation_on_host(const struct allocation *allocation);
static inline bool allocation_is_managed(const struct allocation *allocation)
{
    return allocation->kind == ALLOCATION_MANAGED || allocation->kind == ALLOCATION_OWN_MANAGED;
}
struct driver_device *allocation_device(const struct allocation *allocation);
/* Takes what the driver itself allocated out of the map and frees it; waits for nothing. */
void memory_forget(uint64_t address);
/* Where the kernel is asked to put the next so many bytes that a program gets an address of. */
void *memory_place(uint64_t bytes);
void *memory_map(uint64_t bytes);
/* `untouched`: nothing was ever written there, so that keeping it costs the host nothing. */
void memory_unmap(void *address, uint64_t bytes, bool untouched);

/* pool.c */
void pool_initialise(struct CUmemPoolHandle_st *pool, struct driver_device *device);
void pool_trim_device(struct driver_device *device, bool to_threshold);
bool pool_valid(const struct CUmemPoolHandle_st *pool);
bool pool_on_host(const struct CUmemPoolHandle_st *pool);
/* Takes bytes out of a pool, which reserves more when it must; false: no memory. */
bool pool_take(struct CUmemPoolHandle_st *pool, uint64_t bytes);
void pool_give(struct CUmemPoolHandle_st *pool, uint64_t bytes);
/* The same where memory_mutex is held. `shared`: the bytes were exported and are charged alone. */
void pool_give_back_locked(struct CUmemPoolHandle_st *pool, uint64_t bytes, bool shared);
void pool_insert_locked(struct CUmemPoolHandle_st *pool);

/* pool_host.c: the default and the current pool of the host, or of a NUMA node of it */
CUresult pool_host_get(CUmemoryPool *pool, const CUmemLocation *location, bool default_one);
CUresult pool_host_set(const CUmemLocation *location, struct CUmemPoolHandle_st *pool);
bool pool_host_owns(const struct CUmemPoolHandle_st *pool);
void pool_host_forget_locked(const struct CUmemPoolHandle_st *pool);

#endif
