/* Hooks of green contexts. One retains the primary context of its device and costs something more;
 * so the primary one is retained and charged first, on its own.
 *
 * Memory allocated while a green context is current belongs to the primary context on a real
 * device, and ends with the green one on some (the simulated one among them). A pointer's fate can
 * be asked; all else stays charged until the primary context ends. */
#include <stdbool.h>

#include "compute/cap/throttle.h"
#include "hooks/hook.h"
#include "hooks/hook_context.h"
#include "memory/contexts/context_charge.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/allocation_map.h"
#include "memory/ledger/deferred_free.h"
#include "memory/local/local_memory.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

/* The context that is current when a green one is. */
static CUcontext inner_context(CUgreenCtx green)
{
    CUcontext context = NULL;
    if (real.cuCtxFromGreenCtx == NULL || real.cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS)
        return NULL;
    return context;
}

static CUresult create(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device,
                       unsigned int flags)
{
    struct context_charge opening;
    CUresult result = context_charge_begin_green(&opening, device);
    if (result != CUDA_SUCCESS)
        return result;
    CUgreenCtx made = NULL; /* a refusal leaves the program's as it was */
    result = real.cuGreenCtxCreate(&made, description, device, flags);
    CUcontext inner = result == CUDA_SUCCESS ? inner_context(made) : NULL;
    if (!context_charge_end(&opening, result)) {
        real.cuGreenCtxDestroy(made);
        context_charge_undone(&opening, inner);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *green = made;
    if (result == CUDA_SUCCESS)
        local_memory_context_made(inner);
    if (result == CUDA_SUCCESS && opening.charge.device >= 0) {
        struct allocation allocation = {
            .address = (uintptr_t)made,
            .bytes = opening.charge.bytes,
            .context = charge_context(inner),
            .owner = &context_charge_owner,
            .device = (uint16_t)opening.charge.device,
            .kind = VGPU_KIND_CONTEXT,
            .space = SPACE_CONTEXT,
        };
        charge_taken(&allocation, false);
    }
    return result;
}

VGPU_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description,
                                      CUdevice device, unsigned int flags)
{
    NEEDS(cuGreenCtxCreate);
    CUcontext primary;
    if (green == NULL || region_open() == REGION_NONE)
        return real.cuGreenCtxCreate(green, description, device, flags);
    contexts_lock();
    CUresult result = primary_retain(&primary, device);
    if (result == CUDA_SUCCESS) {
        result = create(green, description, device, flags);
        primary_give_back(device); /* a green context has retained it by now */
    }
    contexts_unlock();
    return result;
}

/* Whether the driver may still hold what was allocated, although its green context has ended. */
static bool may_live(const struct allocation *allocation)
{
    if (allocation->space == SPACE_CONTEXT)
        return false;
    return allocation->space != SPACE_ADDRESS ||
           devices_of_pointer(allocation->address) != DEVICE_UNKNOWN;
}

/* Ends the charges made in a green context that has ended, or hands them to the primary one. */
static void drop_green(CUcontext inner)
{
    struct allocation taken;
    struct allocation_walk walk = {0};
    bool any = true;
    while (any) { /* what is put back may move entries past the walk: until one finds none */
        any = false;
        walk = (struct allocation_walk){0};
        while (allocation_map_take_of_context(charge_context(inner), &walk, &taken)) {
            CUcontext primary = primary_of(taken.device);
            bool stays = primary != NULL && primary != inner && may_live(&taken);
            taken.context = charge_context(primary);
            charge_taken(&taken, !stays);
            any = true;
        }
    }
}

VGPU_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    NEEDS(cuGreenCtxDestroy);
    CUcontext inner = NULL;
    if (green != NULL && region_open() != REGION_NONE)
        inner = inner_context(green);
    throttle_forget_context(inner);
    deferred_free_hold_context(inner);
    contexts_lock();
    CUresult result = real.cuGreenCtxDestroy(green);
    if (result == CUDA_SUCCESS) {
        primary_settle_all(); /* first: those that ended have nothing left to be handed */
        if (inner != NULL) {
            drop_green(inner);
            local_memory_context_ended(inner);
        }
    }
    deferred_free_let_go_context(inner, result == CUDA_SUCCESS);
    contexts_unlock();
    reconcile_quiet();
    return result;
}
