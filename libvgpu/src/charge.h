/* The steps every allocating hook takes: reserve in the ledger, let the driver act, then keep the
 * charge with the pointer or give it back. Glue over ledger, region and allocation_map that also
 * keeps this process's counters; no lock of its own. */
#ifndef VGPU_CHARGE_H
#define VGPU_CHARGE_H

#include <stdint.h>

#include "vgpu/cuda_api.h"

#define CHARGE_NONE (-1) /* device of a charge that nobody counts: there is no slice */

struct charge {
    int device; /* index in `limits`, or CHARGE_NONE */
    uint16_t kind;
    uint64_t bytes;
};

/* Reserves `bytes` on `device`. CUDA_SUCCESS (also without a slice), or what the hook returns to
 * its caller: CUDA_ERROR_OUT_OF_MEMORY. _current takes the current context's
 * device, _stream that of the stream, for memory of pools. */
CUresult charge_reserve(struct charge *charge, int device, uint16_t kind, uint64_t bytes);
CUresult charge_reserve_current(struct charge *charge, uint16_t kind, uint64_t bytes);
CUresult charge_reserve_stream(struct charge *charge, CUstream stream, uint64_t bytes);

/* Moves a reservation to the device that the driver really took the memory from. */
CUresult charge_move(struct charge *charge, CUdeviceptr address);

/* Changes a reservation once the driver has said how much it took. */
CUresult charge_grow(struct charge *charge, uint64_t bytes);

/* Gives the reservation back. */
void charge_cancel(const struct charge *charge);

/* Keeps the reservation for as long as `address` lives. */
void charge_keep(const struct charge *charge, CUdeviceptr address);

/* Reserve and charge_keep/charge_cancel in one, by the driver's `result`. Returns `result`. */
CUresult charge_settle(const struct charge *charge, CUresult result, const CUdeviceptr *address);

/* Takes what the driver has already taken, limit or not. */
void charge_force(struct charge *charge, int device, uint16_t kind, uint64_t bytes);

/* Frees through `call` and gives back what the pointer was charged; an unknown pointer is the
 * driver's business. */
#define CHARGE_FREE(address, call) \
    do { \
        struct allocation taken_; \
        bool known_ = charge_take(address, &taken_); \
        CUresult result_ = (call); \
        charge_taken(known_ ? &taken_ : NULL, result_ == CUDA_SUCCESS); \
        return result_; \
    } while (0)

struct allocation;
_Bool charge_take(CUdeviceptr address, struct allocation *taken);
void charge_taken(const struct allocation *taken, _Bool freed);

/* Gives everything back that was allocated in a context that has ended. */
void charge_drop_context(CUcontext context);

#endif
