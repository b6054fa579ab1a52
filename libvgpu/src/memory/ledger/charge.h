/* The steps every allocating hook takes: reserve in the ledger, let the driver act, then keep the
 * charge with the pointer or give it back. Glue over ledger, region and allocation_map that also
 * keeps this process's counters; no lock of its own. */
#ifndef VGPU_CHARGE_H
#define VGPU_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger/allocation_map.h"
#include "slice/ledger.h"
#include "vgpu/cuda_api.h"

#define CHARGE_NONE (-1) /* device of a charge that nobody counts: there is no slice */

struct charge {
    int device; /* index in `limits`, or CHARGE_NONE */
    uint16_t kind;
    uint64_t bytes;
    struct ledger_refusal refusal; /* after a refusal: what stood in the ledger */
};

/* What an allocation takes: the driver gives device memory in steps of 512 bytes. */
static inline uint64_t charge_rounded(uint64_t bytes)
{
    return bytes > UINT64_MAX - 511 ? UINT64_MAX - 511 : (bytes + 511) & ~(uint64_t)511;
}

/* Reserves `bytes` on `device`. CUDA_SUCCESS (also without a slice), or what the hook returns to
 * its caller: CUDA_ERROR_OUT_OF_MEMORY, counted and said on stderr (or what the driver answered
 * when it was asked for the device). Before it refuses, what this process keeps without using it is
 * given back (charge_on_shortage) and the question asked again. _current takes the current
 * context's device. */
CUresult charge_reserve(struct charge *charge, int device, uint16_t kind, uint64_t bytes);
CUresult charge_reserve_current(struct charge *charge, uint16_t kind, uint64_t bytes);

/* The same without giving anything back first. A refusal is neither counted nor said, but *charge
 * can be handed to charge_refuse. */
bool charge_try(struct charge *charge, int device, uint16_t kind, uint64_t bytes);
/* The same for a charge that says device, kind and bytes, of who has asked region_claim. */
bool charge_try_claimed(struct charge *charge);
CUresult charge_refuse(const struct charge *charge);

/* How everything is reserved: `attempt` is made with `what`, and where it fails, once more after this
 * process has given back what it keeps without using it. Even if nothing was found to give back: another
 * thread may have been first. Returns whether one succeeded. */
bool charge_attempt_again(int device, bool (*attempt)(void *what), void *what);
static inline bool charge_attempt(int device, bool (*attempt)(void *what), void *what)
{
    return attempt(what) || (device >= 0 && charge_attempt_again(device, attempt, what));
}

/* Calls `reclaim` between two attempts on `device`. It may call the driver and take its own locks, and
 * reserves nothing but by charge_try. */
void charge_on_shortage(void (*reclaim)(int device));

/* Changes a reservation to `bytes` once it is known how much it takes. Only more can fail. */
CUresult charge_resize(struct charge *charge, uint64_t bytes);

/* Gives the reservation back. */
void charge_cancel(const struct charge *charge);

/* Takes what the driver has already taken, limit or not. */
void charge_force(struct charge *charge, int device, uint16_t kind, uint64_t bytes);

/* ---- charges that live as long as a handle ---- */

/* Who answers for an allocation's bytes in place of this process's own account. */
struct charge_owner {
    /* The allocation has ended, and is no longer in the map. */
    void (*release)(struct charge_owner *owner, const struct allocation *allocation);
};

/* Keeps the reservation for as long as the handle lives, and at most as long as the context it was
 * made in; _lasting is for what outlives contexts. With an owner or NULL. */
void charge_keep(const struct charge *charge, enum allocation_space space, uint64_t handle,
                 struct charge_owner *owner);
void charge_keep_lasting(const struct charge *charge, enum allocation_space space, uint64_t handle,
                         struct charge_owner *owner);

/* charge_keep or charge_cancel by the driver's `result`, which it returns. `handle` points to the
 * new handle, of eight bytes. */
CUresult charge_settle(const struct charge *charge, CUresult result, enum allocation_space space,
                       const void *handle);

/* An allocation that was taken out of the map has ended (its charge goes), or has not after all (it
 * goes back into the map). */
void charge_taken(const struct allocation *taken, bool ended);

/* A handle that is being freed: charge_free_begin, the driver, charge_free_end with its result, which
 * that returns. An unknown handle is the driver's business. It is taken out of the map before the
 * call: the driver may hand the same handle out again before it returns. */
struct charge_free {
    struct allocation taken;
    bool is_known;
};

static inline struct charge_free charge_free_begin(enum allocation_space space, uint64_t handle)
{
    struct charge_free free;
    free.is_known = allocation_map_take(space, handle, &free.taken);
    return free;
}

static inline CUresult charge_free_end(const struct charge_free *free, CUresult result)
{
    if (free->is_known)
        charge_taken(&free->taken, result == CUDA_SUCCESS);
    return result;
}

/* Gives everything back that was allocated in a context that has ended. */
void charge_drop_context(CUcontext context);

/* A context's handle as `allocation.context` holds it. */
static inline uint64_t charge_context(CUcontext context)
{
    return (uint64_t)(uintptr_t)context;
}

#endif
