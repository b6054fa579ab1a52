/* What a GPU gives memory in: blocks of so many bytes, of which pieces of up to half a block share one.
 *
 * An H100 gives blocks of 2 MiB; a driver that gives what is asked, in steps of 512 bytes, has none. No
 * call tells, so the driver's free bytes do: a piece just larger than 1 MiB takes a block of its own, and
 * one just larger than that takes two. Other processes change the free bytes too, so an answer counts when
 * two pieces agree. The host says in `limits` what containers before this one found; where it does not, the
 * first process of a container asks. All others find the answer in `usage`.
 *
 * Where nothing agrees, blocks are taken to be of 2 MiB: rather too much is charged than too little. Racing first callers store the same. */
#ifndef VGPU_BLOCK_H
#define VGPU_BLOCK_H

#include <stdint.h>

#include "vgpu/contract.h"

#define BLOCK_STEP_BYTES VGPU_LEAST_BLOCK_BYTES

/* The bytes of a block; BLOCK_STEP_BYTES while nobody has found it out. `device` is that of the
 * current context, and the process has its slot. */
uint64_t block_bytes_of(uint32_t device);

/* The same as far as it is known, without asking or a slot. */
uint64_t block_known_bytes(uint32_t device);

/* What memory takes that has no address to tell its slab by: whole blocks, but no more than was asked
 * where it may share one. */
uint64_t block_rounded(uint32_t device, uint64_t bytes);

#endif
