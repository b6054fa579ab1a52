#include "memory/contexts/context_charge.h"

#include "driver/log.h"
#include <pthread.h>

#include "memory/contexts/reconcile.h"
#include "slice/devices.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define TRIES 3

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static bool had_context[VGPU_MAX_DEVICES];   /* atomic: this process has made one on the device */
static uint32_t under_way[VGPU_MAX_DEVICES]; /* atomic: contexts that are being made */
static uint32_t context_count[VGPU_MAX_DEVICES]; /* atomic */
static uint64_t green_bytes[VGPU_MAX_DEVICES]; /* atomic: the largest that was measured, 0: none */

static __thread uint32_t lock_depth; /* of the thread that holds it */

void contexts_lock(void)
{
    if (lock_depth++ == 0)
        lock_take(&context_lock, LOCK_CONTEXTS);
}

void contexts_unlock(void)
{
    if (--lock_depth == 0)
        lock_give_back(&context_lock);
}

static uint64_t counted(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Nobody is refused by an estimate in which another container may have a part: then it is made, and
 * measured once more. */
static CUresult reserve_estimate(struct context_charge *opening, uint32_t device)
{
    uint64_t estimate;
    opening->is_known = context_cost_estimate(device, &estimate);
    if (!opening->is_known || !context_cost_is_rough(device))
        return charge_reserve(&opening->charge, (int)device, VGPU_KIND_CONTEXT, estimate);
    if (charge_try(&opening->charge, (int)device, VGPU_KIND_CONTEXT, estimate))
        return CUDA_SUCCESS;
    opening->is_known = false;
    return charge_reserve(&opening->charge, (int)device, VGPU_KIND_CONTEXT, 0);
}

static CUresult reserve_green(struct context_charge *opening, uint32_t device)
{
    uint64_t bytes = __atomic_load_n(&green_bytes[device], __ATOMIC_RELAXED);
    opening->is_known = bytes > 0 || context_cost_estimate(device, &bytes);
    return charge_reserve(&opening->charge, (int)device, VGPU_KIND_CONTEXT, bytes);
}

static CUresult reserve(struct context_charge *opening, CUdevice device, bool is_green)
{
    *opening = (struct context_charge){.charge.device = CHARGE_NONE, .is_green = is_green};
    enum region_state state = region_open();
    if (state == REGION_NONE)
        return CUDA_SUCCESS;
    int index = state == REGION_MAPPED ? devices_find(device) : DEVICE_NOT_OURS;
    if (index == DEVICE_UNKNOWN)
        return CUDA_SUCCESS; /* the driver says why */
    if (index < 0 || !region_claim())
        return charge_reserve(&opening->charge, index, VGPU_KIND_CONTEXT, 0);
    const struct vgpu_usage_slot_device *own = region_counters((uint32_t)index);
    opening->is_first = !is_green && counted(&own->bytes) == 0;
    bool is_told = opening->is_first && context_cost_news((uint32_t)index) != CONTEXT_COST_UNKNOWN;
    CUresult result = is_green ? reserve_green(opening, (uint32_t)index)
                               : reserve_estimate(opening, (uint32_t)index);
    if (result != CUDA_SUCCESS)
        return result;
    /* A further context costs what the first did. It is not measured: what other threads take, and
     * shared memory that passes to this process when its owner goes, would count as its cost. */
    bool is_judged = opening->is_first || !opening->is_known || is_green;
    if ((is_told && opening->is_known && !is_green) || !is_judged)
        return CUDA_SUCCESS;
    opening->is_sampled = true;
    opening->before = context_cost_sample((uint32_t)index);
    opening->charge_count = counted(&own->count);
    if (opening->is_first && !__atomic_load_n(&had_context[index], __ATOMIC_RELAXED))
        reconcile_pid_is((uint32_t)index, opening->before.own_count > 0);
    return CUDA_SUCCESS;
}

static CUresult begin(struct context_charge *opening, CUdevice device, bool is_green)
{
    CUresult result = reserve(opening, device, is_green);
    if (result == CUDA_SUCCESS && opening->charge.device >= 0)
        __atomic_add_fetch(&under_way[opening->charge.device], 1, __ATOMIC_RELEASE);
    return result;
}

CUresult context_charge_begin(struct context_charge *opening, CUdevice device)
{
    return begin(opening, device, false);
}

CUresult context_charge_begin_green(struct context_charge *opening, CUdevice device)
{
    return begin(opening, device, true);
}

/* Whether no other thread of this process took or gave back memory since context_charge_begin. */
static bool is_alone(const struct context_charge *opening)
{
    const struct vgpu_usage_slot_device *own = region_counters((uint32_t)opening->charge.device);
    return counted(&own->count) == opening->charge_count;
}

/* From the growth of what this process holds, which other threads may have a part in. */
static uint64_t judged_bytes(const struct context_charge *opening, uint64_t growth)
{
    if (!is_alone(opening))
        return opening->is_known ? opening->charge.bytes : growth;
    if (opening->is_first)
        context_cost_keep((uint32_t)opening->charge.device, growth);
    return growth;
}

/* False where nobody can tell. */
static bool measure_green(const struct context_charge *opening, uint64_t *bytes)
{
    uint32_t device = (uint32_t)opening->charge.device;
    struct context_cost_sample after = context_cost_sample(device);
    if (opening->before.own_count != 1 || after.own_count != 1 || !is_alone(opening) ||
        after.own_bytes < opening->before.own_bytes)
        return false;
    *bytes = after.own_bytes - opening->before.own_bytes;
    if (*bytes > __atomic_load_n(&green_bytes[device], __ATOMIC_RELAXED))
        __atomic_store_n(&green_bytes[device], *bytes, __ATOMIC_RELAXED);
    return true;
}

/* What the context costs, as well as it can be told. */
static uint64_t measured_bytes(struct context_charge *opening)
{
    uint32_t device = (uint32_t)opening->charge.device;
    uint64_t reserved = opening->charge.bytes;
    uint64_t bytes;
    if (!opening->is_sampled)
        return reserved;
    if (opening->is_green && measure_green(opening, &bytes))
        return bytes;
    if (opening->is_green && opening->is_known) {
        log_line(LOG_INFO, "what a green context takes cannot be measured: %llu bytes are charged",
                 (unsigned long long)reserved);
        return reserved;
    }
    if (opening->is_first && context_cost_news(device) == CONTEXT_COST_EXACT &&
        context_cost_estimate(device, &bytes))
        return bytes;
    struct context_cost_sample after = context_cost_sample(device);
    bool had = __atomic_load_n(&had_context[device], __ATOMIC_RELAXED);
    enum context_cost_quality quality = context_cost_growth(&opening->before, &after, had, &bytes);
    switch (context_cost_is_likely(device, bytes) ? quality : CONTEXT_COST_UNKNOWN) {
    case CONTEXT_COST_EXACT:
        return judged_bytes(opening, bytes);
    case CONTEXT_COST_ROUGH:
        if (opening->is_known)
            return reserved;
        opening->is_rough = true;
        return opening->is_first ? context_cost_keep_rough(device, bytes) : bytes;
    default:
        if (!opening->is_known)
            log_line(LOG_INFO, "the cost of a context is not known here and not charged");
        return reserved;
    }
}

static bool settle(struct context_charge *opening, CUresult result)
{
    struct charge *charge = &opening->charge;
    if (result != CUDA_SUCCESS) {
        charge_cancel(charge);
        return true;
    }
    if (charge->device >= 0 && charge_resize(charge, measured_bytes(opening)) != CUDA_SUCCESS)
        return false;
    if (charge->device >= 0) {
        __atomic_store_n(&had_context[charge->device], true, __ATOMIC_RELAXED);
        __atomic_add_fetch(&context_count[charge->device], 1, __ATOMIC_RELAXED);
        reconcile_begin();
    }
    return true;
}

bool context_charge_end(struct context_charge *opening, CUresult result)
{
    int device = opening->charge.device;
    bool is_settled = settle(opening, result);
    if (device >= 0)
        __atomic_sub_fetch(&under_way[device], 1, __ATOMIC_RELEASE);
    return is_settled;
}

void context_charge_ended(const struct charge *charge)
{
    if (charge->device < 0)
        return;
    charge_cancel(charge);
    __atomic_sub_fetch(&context_count[charge->device], 1, __ATOMIC_RELAXED);
    reconcile_soon();
}

static void release(struct charge_owner *owner, const struct allocation *allocation)
{
    (void)owner;
    context_charge_ended(&(struct charge){
        .device = allocation->device, .kind = allocation->kind, .bytes = allocation->bytes});
}

struct charge_owner context_charge_owner = {.release = release};

uint32_t context_charge_count(uint32_t device)
{
    return __atomic_load_n(&context_count[device], __ATOMIC_RELAXED);
}

bool context_charge_is_under_way(uint32_t device)
{
    return __atomic_load_n(&under_way[device], __ATOMIC_ACQUIRE) != 0;
}

void context_charge_after_fork(void)
{
    lock_reset(&context_lock);
    for (uint32_t device = 0; device < VGPU_MAX_DEVICES; device++) {
        had_context[device] = false;
        context_count[device] = under_way[device] = 0;
    }
}

void context_charge_undone(struct context_charge *opening, CUcontext context)
{
    charge_drop_context(context);
    charge_cancel(&opening->charge);
}

bool context_charge_tries_again(const struct context_charge *opening, int tries)
{
    return opening->is_rough && tries < TRIES;
}
