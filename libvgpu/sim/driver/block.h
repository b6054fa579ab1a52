/*
 * Memory as a GPU gives it: in blocks of the calibration's `block_bytes`.
 *
 * What is larger than `small_bytes` has blocks of its own. Smaller pieces share slabs of one block:
 * a piece takes whole units of 512 bytes and goes to the first place, by address, in which it fits,
 * whatever other sizes lie around it; where no slab of its context has room, a new one is made. A
 * slab goes back to the device with its last piece. Addresses are given out first fit too, aligned
 * to a block; those of more than 32 MiB are aligned to 32 MiB, as on an H100.
 *
 * The bytes of a block are host memory at its very addresses (mapping.c has those of GPUs that give
 * what was asked). They are backed, and shared with other processes, as one: what another process
 * opens of a piece is a window into a file that holds all of the slab.
 *
 * A mutex in block.c guards the list of blocks and the places in them; it comes before memory_mutex
 * and is held over charging the device. The backing of a block is guarded like all backing, what it
 * shares like that of an allocation (ipc.h); both belong to it as long as it has a piece.
 */
#ifndef VGPU_SIM_BLOCK_H
#define VGPU_SIM_BLOCK_H

#include "driver.h"

struct shared_bytes;

struct block {
    uint64_t address, bytes;
    struct CUctx_st *context;
    bool charged;
    uint64_t *units;     /* of a slab: a bit for each that is taken */
    uint64_t unit_count; /* that are taken */
    struct backing backing;
    struct shared_bytes *shared; /* other processes have it too; NULL: none */
    struct block *next, *previous;
};

/* Whether a device gives memory so, and not as it was asked for. */
bool block_wanted(const struct driver_device *device);
uint64_t block_round(const struct driver_device *device, uint64_t bytes);
/* `charged`: taken of the device at once, and small pieces share; else the caller charges. `moved`:
 * the bytes that the device gave for it, 0 where there was room. */
CUresult block_take(struct CUctx_st *context, uint64_t bytes, bool charged, struct block **block,
                    CUdeviceptr *address, uint64_t *moved);
/* Gives back what was taken there; returns the bytes that the device has again, 0 where others are
 * left in the block. */
uint64_t block_give(struct block *block, uint64_t address, uint64_t bytes);

#endif
