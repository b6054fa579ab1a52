/* Device memory by its address, charged as the GPU gives it (block.h): what is larger than half a block
 * in whole blocks, smaller pieces by the slabs that they lie in (slabs.h).
 *
 * A small piece reserves a whole slab before the driver is asked, and gives it back where it turns out that
 * one that is charged had room. At the limit it is granted only where such a slab has room for it; should
 * the driver open a new one all the same, the piece is undone. No lock of its own. */
#ifndef VGPU_PIECE_H
#define VGPU_PIECE_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger/charge.h"

struct piece {
    struct charge charge;
    uint64_t bytes;       /* as asked, in whole steps */
    uint64_t block_bytes; /* of the slab that it may share; 0: it shares none */
};

/* As charge_reserve_current: on the device of the current context. Managed memory shares no slab. */
CUresult piece_reserve_current(struct piece *piece, uint16_t kind, uint64_t bytes);

/* The same without giving anything back first, and without a refusal: *fits says whether it is reserved. */
CUresult piece_try_current(struct piece *piece, uint16_t kind, uint64_t bytes, bool *fits);

/* Changes a reservation once it is known how much was meant. Only more can fail. */
CUresult piece_resize(struct piece *piece, uint64_t bytes);

/* What the driver answered: keeps the charge with the address, or gives it back. Returns that answer, or
 * CUDA_ERROR_OUT_OF_MEMORY when the piece lay in a slab that does not fit and was freed again. */
CUresult piece_settle(const struct piece *piece, CUresult result, CUdeviceptr address);

/* Gives the driver back what the program does not get. */
void piece_give_back(CUdeviceptr address);

#endif
