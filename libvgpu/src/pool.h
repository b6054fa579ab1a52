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
 * read without a lock (records are reused, never unmapped). A forked child starts without records.
 */
#ifndef VGPU_POOL_H
#define VGPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "charge.h"
#include "vgpu/cuda_api.h"

struct pool;

/* The record of a stream-ordered pool; of the one that cuMemAllocAsync would take memory from on
 * that stream; of a GPU's graph memory. NULL: not charged (no slice, host memory, or the driver
 * must say what is wrong). _to_take is for who takes memory from it: it answers what the hook
 * returns to its caller if it is not CUDA_SUCCESS. */
struct pool *pool_of(CUmemoryPool handle, CUstream stream);
CUresult pool_to_take(struct pool **pool, CUmemoryPool handle, CUstream stream);
CUresult pool_of_stream(struct pool **pool, CUstream stream);
struct pool *pool_of_graphs(CUdevice device);

/* Says where a pool's memory is, as its creator or the driver said. _made is for one that has just
 * been made: a record of its number is of one that was never there, or has ended unseen. */
void pool_placed(CUmemoryPool handle, CUmemLocation location, CUmemAllocationType type);
void pool_made(CUmemoryPool handle, CUmemLocation location, CUmemAllocationType type);

/* Before memory is taken that may make the pool larger by up to `bytes`, and after it: `address` is
 * what was allocated, NULL if nothing was or the bytes have no address yet. Between the two the
 * pool is locked. pool_begin answers what the hook returns to its caller if it is not
 * CUDA_SUCCESS. pool_end answers false when the pool turned out to have become larger than fits:
 * then undo, and call pool_refresh. */
CUresult pool_begin(struct pool *pool, uint64_t bytes);
bool pool_end(struct pool *pool, uint64_t bytes, const CUdeviceptr *address);

/* What the driver kept for the pool when it was last asked. */
uint64_t pool_kept_bytes(const struct pool *pool);

/* Sets the charge to what the driver says now. */
void pool_refresh(struct pool *pool);

/* After a wait for the GPU, when the driver may have given memory back. */
void pool_after_wait(void);

/* Before and after a pool is destroyed: what is left of it is charged until it is freed. Between
 * the two the record, which may be NULL, is locked. */
struct pool *pool_destroying(CUmemoryPool handle);
void pool_destroyed(struct pool *pool, bool done);

/* The pool that an allocation's owner is; NULL: it is none. */
struct pool *pool_owning(struct charge_owner *owner);

/* Takes rounded `bytes` out of a pool's charge, for one allocation that is charged elsewhere from
 * now on: they are part of what the driver counts for this pool until pool_took_back. */
void pool_hand_over(struct pool *pool, uint64_t bytes);
void pool_took_back(struct pool *pool, uint64_t bytes);

#endif
