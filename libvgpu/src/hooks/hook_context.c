/* Hooks of contexts: a context costs device memory before its first allocation (context_charge.h),
 * and takes what was allocated in it along when it ends: not what was made by cuMemCreate or came
 * from a pool, which stays. Green contexts: hook_green.c. */
#include "hooks/hook_context.h"

#include <stdbool.h>

#include "compute/cap/throttle.h"
#include "hooks/hook.h"
#include "memory/contexts/context_charge.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/allocation_map.h"
#include "memory/ledger/deferred_free.h"
#include "memory/local/local_memory.h"
#include "slice/region.h"
#include "vgpu/contract.h"

static struct charge primary_charge[CONTEXT_DEVICES]; /* by CUDA device */
static CUcontext primary_context[CONTEXT_DEVICES];    /* NULL: not charged */
static bool is_being_retained[CONTEXT_DEVICES];       /* and charged when that has happened */
static int primary_references[CONTEXT_DEVICES]; /* atomic: that this process was seen to take */

void contexts_after_fork(void)
{
    for (int i = 0; i < CONTEXT_DEVICES; i++) {
        primary_charge[i] = (struct charge){.device = CHARGE_NONE};
        primary_context[i] = NULL;
        primary_references[i] = 0;
        is_being_retained[i] = false;
    }
}

static void drop_context(CUcontext context)
{
    charge_drop_context(context);
    local_memory_context_ended(context);
}

/* ---- primary contexts ---- */

static bool is_accounted(CUdevice device)
{
    return device >= 0 && device < CONTEXT_DEVICES;
}

/* Returns how many are left. */
static int count_reference(CUdevice device, int by)
{
    return is_accounted(device)
               ? __atomic_add_fetch(&primary_references[device], by, __ATOMIC_RELAXED)
               : 0;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    CUresult result = real.cuDevicePrimaryCtxRetain(context, device);
    if (result == CUDA_SUCCESS)
        count_reference(device, 1);
    return result;
}

static void give_back(CUdevice device)
{
    if (real.cuDevicePrimaryCtxRelease_v2(device) == CUDA_SUCCESS)
        count_reference(device, -1);
}

/* One try of primary_retain. */
static CUresult retain_charged(struct context_charge *opening, CUcontext *context, CUdevice device)
{
    CUresult result = context_charge_begin(opening, device);
    if (result != CUDA_SUCCESS)
        return result;
    is_being_retained[device] = true;
    result = retain(context, device);
    is_being_retained[device] = false;
    if (!context_charge_end(opening, result)) {
        give_back(device);
        context_charge_undone(opening, *context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        local_memory_context_made(*context);
    if (result == CUDA_SUCCESS && opening->charge.device >= 0) {
        primary_charge[device] = opening->charge;
        primary_context[device] = *context;
    }
    return result;
}

CUresult primary_retain(CUcontext *context, CUdevice device)
{
    if (!is_accounted(device) || primary_context[device] != NULL || is_being_retained[device])
        return retain(context, device);
    struct context_charge opening;
    int tries = 0;
    CUresult result;
    do
        result = retain_charged(&opening, context, device);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && context_charge_tries_again(&opening, ++tries));
    return result;
}

VGPU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    NEEDS(cuDevicePrimaryCtxRetain);
    if (context == NULL || region_open() == REGION_NONE)
        return real.cuDevicePrimaryCtxRetain(context, device);
    contexts_lock();
    CUresult result = primary_retain(context, device);
    contexts_unlock();
    return result;
}

void primary_settle(CUdevice device)
{
    unsigned int flags = 0;
    int active = 1;
    if (!is_accounted(device) || primary_context[device] == NULL ||
        real.cuDevicePrimaryCtxGetState == NULL ||
        real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active)
        return;
    drop_context(primary_context[device]);
    context_charge_ended(&primary_charge[device]);
    primary_context[device] = NULL;
    primary_charge[device] = (struct charge){.device = CHARGE_NONE};
    __atomic_store_n(&primary_references[device], 0, __ATOMIC_RELAXED);
}

void primary_give_back(CUdevice device)
{
    give_back(device);
    primary_settle(device);
}

void primary_settle_all(void)
{
    for (CUdevice device = 0; device < CONTEXT_DEVICES; device++)
        primary_settle(device);
}

CUcontext primary_of(int index)
{
    for (int i = 0; i < CONTEXT_DEVICES; i++)
        if (primary_context[i] != NULL && primary_charge[i].device == index)
            return primary_context[i];
    return NULL;
}

/* Before the driver ends our events in a context, and its code. */
static void forget_events(CUcontext context)
{
    throttle_forget_context(context);
    deferred_free_hold_context(context);
}

/* A context that others still hold goes on, and what is measured in it, too. References that were
 * taken where nobody counted them make one seem the last, which only costs time. */
#define END_PRIMARY(symbol, drops_all) \
    VGPU_EXPORT CUresult symbol(CUdevice device) \
    { \
        NEEDS(symbol); \
        CUcontext context = NULL; \
        bool is_last = (drops_all) || count_reference(device, -1) <= 0; \
        if (is_accounted(device) && is_last) \
            context = __atomic_load_n(&primary_context[device], __ATOMIC_RELAXED); \
        if (is_last) \
            forget_events(context); \
        contexts_lock(); \
        CUresult result = real.symbol(device); \
        if (result != CUDA_SUCCESS && !(drops_all)) \
            count_reference(device, 1); \
        if (result == CUDA_SUCCESS && (drops_all) && is_accounted(device)) \
            drop_context(primary_context[device]); \
        if (result == CUDA_SUCCESS) \
            primary_settle(device); \
        if (context != NULL) \
            deferred_free_let_go_context(context, \
                                         result == CUDA_SUCCESS && \
                                             ((drops_all) || primary_context[device] != context)); \
        contexts_unlock(); \
        if (is_last) \
            reconcile_soon(); \
        reconcile_quiet(); \
        return result; \
    }

/* A reset frees what was allocated, whether or not the context itself goes. */
END_PRIMARY(cuDevicePrimaryCtxRelease, false)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false)
END_PRIMARY(cuDevicePrimaryCtxReset, true)
END_PRIMARY(cuDevicePrimaryCtxReset_v2, true)

/* ---- created contexts ---- */

/* The charge of a created context is kept in the allocation map under the handle itself. */
static CUresult created(struct context_charge *opening, CUresult result, const CUcontext *context)
{
    if (!context_charge_end(opening, result)) {
        real.cuCtxDestroy_v2(*context);
        context_charge_undone(opening, *context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        local_memory_context_made(*context);
    if (result == CUDA_SUCCESS && opening->charge.device >= 0) {
        struct allocation allocation = {
            .address = charge_context(*context),
            .bytes = opening->charge.bytes,
            .context = charge_context(*context),
            .owner = &context_charge_owner,
            .device = (uint16_t)opening->charge.device,
            .kind = VGPU_KIND_CONTEXT,
            .space = SPACE_CONTEXT,
        };
        charge_taken(&allocation, false);
    }
    return result;
}

/* Around the driver's call, from one to the other under the lock of contexts. _begin answers
 * CUDA_SUCCESS, or what the hook returns, and then has unlocked. */
static CUresult create_begin(struct context_charge *opening, CUdevice device)
{
    contexts_lock();
    CUresult result = context_charge_begin(opening, device);
    if (result != CUDA_SUCCESS)
        contexts_unlock();
    return result;
}

static CUresult create_end(struct context_charge *opening, CUresult result,
                           const CUcontext *context)
{
    result = created(opening, result, context);
    contexts_unlock();
    return result;
}

/* The hook's body: `call` makes the context. */
#define CREATE_CONTEXT(symbol, call) \
    do { \
        NEEDS(symbol); \
        ALONE_WITHOUT(context, call); \
        struct context_charge opening; \
        int tries = 0; \
        CUresult result; \
        do { \
            result = create_begin(&opening, device); \
            if (result != CUDA_SUCCESS) \
                return result; \
            result = create_end(&opening, real.call, context); \
        } while (result == CUDA_ERROR_OUT_OF_MEMORY && \
                 context_charge_tries_again(&opening, ++tries)); \
        return result; \
    } while (0)

VGPU_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    CREATE_CONTEXT(cuCtxCreate, cuCtxCreate(context, flags, device));
}

VGPU_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    CREATE_CONTEXT(cuCtxCreate_v2, cuCtxCreate_v2(context, flags, device));
}

VGPU_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities,
                                    int affinity_count, unsigned int flags, CUdevice device)
{
    CREATE_CONTEXT(cuCtxCreate_v3,
                   cuCtxCreate_v3(context, affinities, affinity_count, flags, device));
}

VGPU_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params,
                                    unsigned int flags, CUdevice device)
{
    CREATE_CONTEXT(cuCtxCreate_v4, cuCtxCreate_v4(context, params, flags, device));
}

#define DESTROY_CONTEXT(symbol) \
    VGPU_EXPORT CUresult symbol(CUcontext context) \
    { \
        NEEDS(symbol); \
        forget_events(context); \
        contexts_lock(); \
        CUresult result = real.symbol(context); \
        if (result == CUDA_SUCCESS) \
            drop_context(context); /* its own charge is one of them */ \
        deferred_free_let_go_context(context, result == CUDA_SUCCESS); \
        contexts_unlock(); \
        reconcile_quiet(); \
        return result; \
    }

DESTROY_CONTEXT(cuCtxDestroy)
DESTROY_CONTEXT(cuCtxDestroy_v2)

/* Whether the calling thread's current context ended in the call before, when it was `context`. */
static bool has_ended(CUcontext context)
{
    CUcontext current = NULL;
    CUdevice device;
    return real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context ||
           real.cuCtxGetDevice(&device) != CUDA_SUCCESS;
}

/* The driver counts the references; the last one ends the context. */
VGPU_EXPORT CUresult cuCtxDetach(CUcontext context)
{
    NEEDS(cuCtxDetach);
    forget_events(context);
    contexts_lock();
    CUresult result = real.cuCtxDetach(context);
    bool is_over = result == CUDA_SUCCESS && has_ended(context);
    if (is_over)
        drop_context(context);
    deferred_free_let_go_context(context, is_over);
    contexts_unlock();
    reconcile_quiet();
    return result;
}
