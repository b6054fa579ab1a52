#include "memory/code/code_load.h"

#include <stddef.h>

#include "driver/capture.h"
#include "driver/log.h"
#include "driver/real.h"
#include "memory/contexts/reconcile.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define MOST_TRIES 3
#define SURE_ESTIMATE_BYTES ((uint64_t)64 << 20) /* a neighbour's part in it is no larger */

static uint64_t counter(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* What is not free of the current context's GPU. */
static bool gpu_bytes(uint64_t *bytes)
{
    size_t free_bytes, total_bytes;
    struct capture_pause pause = capture_pause();
    CUresult result = real.cuMemGetInfo_v2 != NULL ? real.cuMemGetInfo_v2(&free_bytes, &total_bytes)
                                                   : CUDA_ERROR_NOT_SUPPORTED;
    capture_resume(pause);
    if (result == CUDA_SUCCESS)
        *bytes = total_bytes - free_bytes;
    return result == CUDA_SUCCESS;
}

void code_load_begin(struct code_load *load)
{
    int device;
    load->charge = (struct charge){.device = CHARGE_NONE, .kind = VGPU_KIND_MODULE};
    if (region_open() != REGION_MAPPED || devices_ask_current(&device) != CUDA_SUCCESS ||
        device < 0 || !region_claim())
        return;
    const struct vgpu_usage_slot_device *own = region_counters((uint32_t)device);
    load->is_own = load->tries == 0 && reconcile_own_bytes((uint32_t)device, &load->held_bytes);
    if (!load->is_own && load->tries == 0)
        log_line(LOG_INFO, "NVML does not tell what this process holds: what it loads of code is "
                           "estimated");
    if (!load->is_own && !gpu_bytes(&load->held_bytes))
        return;
    load->charged_bytes = counter(&own->bytes);
    load->change_count = counter(&own->count);
    load->charge.device = device;
}

/* Measures what it grew by. False where other threads may have a part in that, or nobody can tell. */
static bool measure(struct code_load *load)
{
    const struct vgpu_usage_slot_device *own = region_counters((uint32_t)load->charge.device);
    uint64_t now_bytes;
    bool is_known = load->is_own ? reconcile_own_bytes((uint32_t)load->charge.device, &now_bytes)
                                 : gpu_bytes(&now_bytes);
    int64_t grown_bytes = is_known ? (int64_t)(now_bytes - load->held_bytes) : 0;
    int64_t others_bytes = (int64_t)(counter(&own->bytes) - load->charged_bytes);
    if (others_bytes > 0)
        grown_bytes -= others_bytes;
    if (grown_bytes < 0)
        grown_bytes = 0;
    if (load->tries == 0 || (uint64_t)grown_bytes < load->least_bytes)
        load->least_bytes = (uint64_t)grown_bytes;
    return is_known && counter(&own->count) == load->change_count;
}

enum code_load_verdict code_load_end(struct code_load *load, CUresult result)
{
    struct charge *charge = &load->charge;
    reconcile_soon();
    if (result != CUDA_SUCCESS || charge->device < 0)
        return CODE_LOADED;
    bool is_alone = measure(load);
    uint64_t bytes = load->least_bytes;
    bool is_last = load->is_own || load->tries + 1 == MOST_TRIES;
    bool is_unsure = !load->is_own && load->tries == 0 && bytes > SURE_ESTIMATE_BYTES;
    bool fits =
        !is_unsure &&
        (is_last ? charge_reserve(charge, charge->device, VGPU_KIND_MODULE, bytes) == CUDA_SUCCESS
                 : charge_try(charge, charge->device, VGPU_KIND_MODULE, bytes));
    load->tries++;
    if (!fits)
        return is_last ? CODE_REFUSED : CODE_TRY_AGAIN;
    if (!is_alone) {
        charge_cancel(charge);
        charge->bytes = 0;
    }
    return CODE_LOADED;
}
