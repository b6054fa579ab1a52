/* Small pieces of device memory, which share slabs: blocks of the GPU (block.h) that are told by the
 * addresses of what lies in them. A slab is charged once, from its first piece to its last, to the process
 * that has it.
 *
 * One lock guards the records; under it the map of allocations is read where room is looked for. Records
 * are owners of entries in that map (charge.h), which keep them; they are reused, never unmapped. A forked
 * child starts without: the memory is its parent's. */
#ifndef VGPU_SLABS_H
#define VGPU_SLABS_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger/charge.h"

/* Notes a piece at `address` in its slab of `block_bytes`, a power of two. NULL: there is no host memory.
 * *is_new: the slab was not known, and `charge`, which may be of nothing, is what it is charged. */
struct charge_owner *slabs_join(uint64_t address, uint64_t piece_bytes, uint64_t block_bytes,
                                const struct charge *charge, bool *is_new);

/* A new slab turned out to be charged nothing: this is its charge. */
void slabs_pay(struct charge_owner *owner, const struct charge *charge);

/* Whether a slab of that device has room for a piece, as the driver will find it. */
bool slabs_have_room(int device, uint64_t piece_bytes, uint64_t block_bytes);

/* For fork.c. */
void slabs_after_fork(void);

#endif
