/* What memory pools keep, charged as a whole: a pool's charge follows the bytes that the driver
 * says it has reserved from the GPU, not those in use. There is a record for each pool of this
 * process that memory was asked of, and one for the graph memory of each GPU.
 *
 * An allocation is enclosed in pool_begin and pool_end: what it may add to the pool is reserved in
 * the ledger first, then the driver called, then its figure read and the charge set to it. Spare
 * bytes that the pool keeps are used without a reservation. Freed memory stays charged until the
 * driver gives it back, which is looked for after every wait for the GPU, at the next allocation,
 * and before this process is refused anything: then what is idle is trimmed.
 *
 * A mutex per pool is held from begin to end, the driver's call included; the list of records is
 * read without a lock (records are reused, never unmapped). A forked child starts with none. */
#ifndef VGPU_POOL_H
#define VGPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger/charge.h"
#include "vgpu/cuda_api.h"

struct pool;

/* The record of a stream-ordered pool; of the one that cuMemAllocAsync takes memory from on that
 * stream, with its handle; of a GPU's graph memory. Locked for the calling thread: a pool does not
 * end meanwhile. NULL: not charged (no slice, host memory, or the driver must say what is wrong).
 * An answer that is not CUDA_SUCCESS is the driver's, and what the hook returns. */
CUresult pool_lock(struct pool **pool, CUmemoryPool handle, CUstream stream);
CUresult pool_lock_of_stream(struct pool **pool, CUstream stream, CUmemoryPool *handle);
struct pool *pool_lock_of_graphs(CUdevice device);

/* Says where a pool's memory is, as its creator (`is_new`) or the driver said. */
void pool_placed(CUmemoryPool handle, CUmemLocation location, CUmemAllocationType type,
                 bool is_new);

/* Before memory is taken that may make a locked pool larger by up to `bytes`, and after it:
 * `address` is what was allocated, NULL if nothing was. pool_begin unlocks and answers what the
 * hook returns to its caller if that is not CUDA_SUCCESS. pool_end unlocks, or answers false when
 * the pool turned out to have become larger than fits: then free what was allocated and call pool_undo,
 * which has the pool give it back. By then the driver's steps are known, so pool_begin may be asked again
 * and be sure of them; pool_refuse, which unlocks, answers what the hook returns where they were known. */
CUresult pool_begin(struct pool *pool, uint64_t bytes, bool is_sure);
bool pool_end(struct pool *pool, uint64_t bytes, const CUdeviceptr *address);
void pool_undo(struct pool *pool, uint64_t bytes);
CUresult pool_refuse(struct pool *pool);

/* In place of pool_end for graph memory, whatever fits. The epoch is that of pool_epoch: as long as
 * it lasts no graph has been given memory that another one left, and none was trimmed, so that what
 * ran in it finds its memory again. kept_bytes is all of it, taken_bytes what came since pool_begin. */
uint64_t pool_epoch(const struct pool *pool);
void pool_end_graphs(struct pool *pool, uint64_t bytes, uint64_t *kept_bytes, uint64_t *taken_bytes,
                     uint64_t *epoch);

/* Set the charge of a locked pool to what the driver says now, and unlock it; _trimmed after it was
 * made to give memory back. */
void pool_refresh(struct pool *pool);
void pool_trimmed(struct pool *pool);

/* After a wait for the GPU, when the driver may have given memory back. */
void pool_after_wait(void);

/* Before and after a pool is destroyed: what is left of it is charged until it is freed. Between
 * the two the record, which may be NULL, is locked. */
struct pool *pool_destroying(CUmemoryPool handle);
void pool_destroyed(struct pool *pool, bool done);

/* The pool that an allocation's owner is; NULL: it is none. */
struct pool *pool_owning(struct charge_owner *owner);

/* Whether the owner is a pool whose charge follows the driver, so that a free in a stream's order
 * may be told at once. Nobody tells of one that was destroyed. */
bool pool_follows(struct charge_owner *owner);

/* Takes rounded `bytes` out of a pool's charge, for one allocation that is charged elsewhere from
 * now on: they are part of what the driver counts for this pool until pool_took_back. */
void pool_hand_over(struct pool *pool, uint64_t bytes);
void pool_took_back(struct pool *pool, uint64_t bytes);

#endif
