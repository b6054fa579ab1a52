/* Hooks of contexts: a context costs device memory before its first allocation, and takes what was
 * allocated in it along when it ends.
 *
 * The host's estimate is reserved before the driver makes the context. Where the host gave none,
 * what NVML says this process holds, before and after, is charged afterwards; a context that turns
 * out not to fit is ended again. Contexts are few and slow to make: one lock serialises them, so
 * that the measurement sees one at a time. The lock is released in the child of a fork. */
#include <pthread.h>

#include "allocation_map.h"
#include "charge.h"
#include "context_cost.h"
#include "devices.h"
#include "hook.h"
#include "library_context.h"
#include "log.h"
#include "region.h"
#include "throttle.h"
#include "vgpu/contract.h"

#define MOST_DEVICES 64

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static struct charge primary_charge[MOST_DEVICES]; /* by CUDA device; bytes 0: not charged */
static CUcontext primary_context[MOST_DEVICES];

static void reset_in_child(void)
{
    pthread_mutex_init(&context_lock, NULL);
    allocation_map_reset();
    for (int i = 0; i < MOST_DEVICES; i++) {
        primary_charge[i] = (struct charge){.device = CHARGE_NONE};
        primary_context[i] = NULL;
    }
}

static void lock_contexts(void)
{
    pthread_mutex_lock(&context_lock);
    region_on_child(reset_in_child);
}

/* What is known before the driver makes a context, and the reservation for it. */
struct opening {
    struct charge charge;
    struct charge libraries; /* what is loaded into it with it (library_context.h) */
    uint64_t own_bytes_before;
    bool is_measured; /* the host gave no estimate: charge what NVML shows */
};

static CUresult open_begin(struct opening *opening, CUdevice device)
{
    *opening = (struct opening){.charge.device = CHARGE_NONE, .libraries.device = CHARGE_NONE};
    if (region_open() == REGION_NONE)
        return CUDA_SUCCESS;
    int index = region_open() == REGION_MAPPED ? devices_find(device) : DEVICE_NOT_OURS;
    if (index == DEVICE_UNKNOWN)
        return CUDA_SUCCESS; /* the driver says why */
    uint64_t estimate = index >= 0 ? context_cost_estimate((uint32_t)index) : 0;
    CUresult result = charge_reserve(&opening->charge, index, VGPU_KIND_CONTEXT, estimate);
    if (result == CUDA_SUCCESS) {
        result = library_context_reserve(&opening->libraries, index);
        if (result != CUDA_SUCCESS)
            charge_cancel(&opening->charge);
    }
    opening->is_measured = result == CUDA_SUCCESS && estimate == 0;
    if (opening->is_measured &&
        !context_cost_own_bytes((uint32_t)index, &opening->own_bytes_before))
        opening->own_bytes_before = 0; /* not on the GPU yet, or not visible to us */
    return result;
}

/* Corrects what was reserved to what the context cost. False when it does not fit after all. */
static bool measure(struct opening *opening)
{
    uint64_t now = 0;
    if (!opening->is_measured)
        return true;
    if (!context_cost_own_bytes((uint32_t)opening->charge.device, &now)) {
        log_line(LOG_INFO, "the cost of a context is not known here and not charged");
        return true;
    }
    uint64_t cost = now > opening->own_bytes_before ? now - opening->own_bytes_before : 0;
    return charge_resize(&opening->charge, cost) == CUDA_SUCCESS;
}

/* After the driver made it. False when it does not fit after all and must be ended. */
static bool open_end(struct opening *opening, CUresult result, const CUcontext *context)
{
    if (result != CUDA_SUCCESS || !measure(opening)) {
        charge_cancel(&opening->charge);
        charge_cancel(&opening->libraries);
        return result != CUDA_SUCCESS;
    }
    if (library_context_made(&opening->libraries, *context))
        return true;
    charge_cancel(&opening->charge);
    return false;
}

VGPU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    NEED(cuDevicePrimaryCtxRetain);
    if (device < 0 || device >= MOST_DEVICES || region_open() == REGION_NONE)
        return real.cuDevicePrimaryCtxRetain(context, device);
    lock_contexts();
    CUresult result;
    if (primary_context[device] != NULL && primary_charge[device].device >= 0) {
        result = real.cuDevicePrimaryCtxRetain(context, device);
    } else {
        struct opening opening;
        result = open_begin(&opening, device);
        if (result == CUDA_SUCCESS) {
            result = real.cuDevicePrimaryCtxRetain(context, device);
            if (!open_end(&opening, result, context)) {
                real.cuDevicePrimaryCtxRelease_v2(device);
                charge_drop_context(*context);
                result = CUDA_ERROR_OUT_OF_MEMORY;
            } else if (result == CUDA_SUCCESS) {
                primary_charge[device] = opening.charge;
                primary_context[device] = *context;
            }
        }
    }
    pthread_mutex_unlock(&context_lock);
    return result;
}

/* After a release or reset: when the driver has ended the context, so do its charges. */
static void close_primary(CUdevice device)
{
    unsigned int flags = 0;
    int active = 1;
    if (device < 0 || device >= MOST_DEVICES || primary_context[device] == NULL ||
        real.cuDevicePrimaryCtxGetState == NULL ||
        real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active)
        return;
    charge_drop_context(primary_context[device]);
    charge_cancel(&primary_charge[device]);
    primary_context[device] = NULL;
    primary_charge[device] = (struct charge){.device = CHARGE_NONE};
}

#define END_PRIMARY(symbol) \
    VGPU_EXPORT CUresult symbol(CUdevice device) \
    { \
        NEED(symbol); \
        if (device >= 0 && device < MOST_DEVICES) /* our events end with it */ \
            throttle_forget_context(__atomic_load_n(&primary_context[device], __ATOMIC_RELAXED)); \
        lock_contexts(); \
        CUresult result = real.symbol(device); \
        if (result == CUDA_SUCCESS) \
            close_primary(device); \
        pthread_mutex_unlock(&context_lock); \
        return result; \
    }

END_PRIMARY(cuDevicePrimaryCtxRelease)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2)
END_PRIMARY(cuDevicePrimaryCtxReset)
END_PRIMARY(cuDevicePrimaryCtxReset_v2)

/* The charge of a created context is kept in the allocation map under the handle itself. */
static CUresult created(struct opening *opening, CUresult result, CUcontext *context)
{
    if (!open_end(opening, result, context)) {
        real.cuCtxDestroy_v2(*context);
        charge_drop_context(*context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && opening->charge.device >= 0) {
        struct allocation allocation = {
            .address = charge_context(*context),
            .bytes = opening->charge.bytes,
            .context = charge_context(*context),
            .device = (uint16_t)opening->charge.device,
            .kind = VGPU_KIND_CONTEXT,
            .space = SPACE_CONTEXT,
        };
        charge_taken(&allocation, false);
    }
    return result;
}

#define CREATE_CONTEXT(call, context, device) \
    do { \
        struct opening opening; \
        lock_contexts(); \
        CUresult result = open_begin(&opening, device); \
        if (result == CUDA_SUCCESS) \
            result = created(&opening, (call), context); \
        pthread_mutex_unlock(&context_lock); \
        return result; \
    } while (0)

VGPU_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    NEED(cuCtxCreate);
    CREATE_CONTEXT(real.cuCtxCreate(context, flags, device), context, device);
}

VGPU_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    NEED(cuCtxCreate_v2);
    CREATE_CONTEXT(real.cuCtxCreate_v2(context, flags, device), context, device);
}

VGPU_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities,
                                    int affinity_count, unsigned int flags, CUdevice device)
{
    NEED(cuCtxCreate_v3);
    CREATE_CONTEXT(real.cuCtxCreate_v3(context, affinities, affinity_count, flags, device), context,
                   device);
}

VGPU_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params,
                                    unsigned int flags, CUdevice device)
{
    NEED(cuCtxCreate_v4);
    CREATE_CONTEXT(real.cuCtxCreate_v4(context, params, flags, device), context, device);
}

#define DESTROY_CONTEXT(symbol) \
    VGPU_EXPORT CUresult symbol(CUcontext context) \
    { \
        NEED(symbol); \
        throttle_forget_context(context); /* before the driver ends our events in it */ \
        lock_contexts(); \
        CUresult result = real.symbol(context); \
        if (result == CUDA_SUCCESS) \
            charge_drop_context(context); /* its own charge is one of them */ \
        pthread_mutex_unlock(&context_lock); \
        return result; \
    }

DESTROY_CONTEXT(cuCtxDestroy)
DESTROY_CONTEXT(cuCtxDestroy_v2)
