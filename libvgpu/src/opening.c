#include "opening.h"

#include <time.h>

#include "devices.h"
#include "library_context.h"
#include "log.h"
#include "region.h"
#include "vgpu/contract.h"

#define SETTLE_NS 2000000

static uint64_t counted(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

CUresult opening_begin(struct opening *opening, CUdevice device)
{
    *opening = (struct opening){.charge.device = CHARGE_NONE, .libraries.device = CHARGE_NONE};
    enum region_state state = region_open();
    if (state == REGION_NONE)
        return CUDA_SUCCESS;
    int index = state == REGION_MAPPED ? devices_find(device) : DEVICE_NOT_OURS;
    if (index == DEVICE_UNKNOWN)
        return CUDA_SUCCESS; /* the driver says why */
    if (index < 0 || !region_claim())
        return charge_reserve(&opening->charge, index, VGPU_KIND_CONTEXT, 0);
    const struct vgpu_usage_slot_device *own = region_counters((uint32_t)index);
    opening->is_first = counted(&own->bytes) == 0;
    bool is_told = opening->is_first && context_cost_news((uint32_t)index) != CONTEXT_COST_OLD;
    uint64_t estimate;
    opening->is_known = context_cost_estimate((uint32_t)index, &estimate);
    CUresult result = charge_reserve(&opening->charge, index, VGPU_KIND_CONTEXT, estimate);
    if (result != CUDA_SUCCESS)
        return result;
    result = library_context_reserve(&opening->libraries, index);
    if (result != CUDA_SUCCESS)
        charge_cancel(&opening->charge);
    if (result != CUDA_SUCCESS || is_told)
        return result;
    opening->is_sampled = true;
    opening->before = context_cost_sample((uint32_t)index);
    opening->charge_count = counted(&own->count);
    return CUDA_SUCCESS;
}

/* Whether no other thread of this process took or gave back memory since opening_begin. */
static bool is_alone(const struct opening *opening)
{
    const struct vgpu_usage_slot_device *own = region_counters((uint32_t)opening->charge.device);
    return counted(&own->count) == opening->charge_count;
}

/* Whether what this process holds is still `own_bytes` after a pause: a thread that was between the
 * driver's freeing and ours when it was measured has come to its end. */
static bool stays(const struct opening *opening, uint64_t own_bytes)
{
    nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
    struct context_cost_sample again = context_cost_sample((uint32_t)opening->charge.device);
    return again.is_own_known && again.own_bytes == own_bytes && is_alone(opening);
}

/* From the growth of what this process holds, which other threads may have a part in. */
static uint64_t judged_bytes(const struct opening *opening, uint64_t growth, uint64_t own_bytes)
{
    uint64_t reserved = opening->charge.bytes;
    if (!is_alone(opening))
        return opening->is_known ? reserved : growth;
    if (!opening->is_first) /* less is believed only when it lasts; green ones do cost less */
        return growth >= reserved || stays(opening, own_bytes) ? growth : reserved;
    context_cost_keep((uint32_t)opening->charge.device, growth);
    return growth;
}

/* What the context costs, as well as it can be told. */
static uint64_t measured_bytes(const struct opening *opening)
{
    uint32_t device = (uint32_t)opening->charge.device;
    uint64_t reserved = opening->charge.bytes;
    uint64_t bytes;
    if (!opening->is_sampled)
        return reserved;
    if (opening->is_first && context_cost_news(device) == CONTEXT_COST_EXACT &&
        context_cost_estimate(device, &bytes))
        return bytes;
    struct context_cost_sample after = context_cost_sample(device);
    if (context_cost_own_growth(&opening->before, &after, &bytes))
        return judged_bytes(opening, bytes, after.own_bytes);
    if (opening->is_known)
        return reserved;
    if (!after.is_gpu_known || !opening->before.is_gpu_known) {
        log_line(LOG_INFO, "the cost of a context is not known here and not charged");
        return 0;
    }
    bytes = after.gpu_bytes > opening->before.gpu_bytes
                ? after.gpu_bytes - opening->before.gpu_bytes
                : 0;
    return opening->is_first ? context_cost_keep_rough(device, bytes) : bytes;
}

bool opening_end(struct opening *opening, CUresult result, const CUcontext *context)
{
    struct charge *charge = &opening->charge;
    bool fits =
        result == CUDA_SUCCESS &&
        (charge->device < 0 || charge_resize(charge, measured_bytes(opening)) == CUDA_SUCCESS);
    if (!fits)
        charge_cancel(&opening->libraries);
    if (fits && library_context_made(&opening->libraries, *context))
        return true;
    charge_cancel(charge);
    charge->device = CHARGE_NONE;
    return result != CUDA_SUCCESS;
}
