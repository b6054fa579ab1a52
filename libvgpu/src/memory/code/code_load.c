#include "memory/code/code_load.h"

#include "driver/log.h"
#include "memory/contexts/context_cost.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/block.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "slice/usage_file.h"
#include "vgpu/contract.h"

#define MOST_TRIES 3
#define SURE_ESTIMATE_BYTES ((uint64_t)64 << 20) /* a neighbour's part in it is no larger */

static uint64_t counter(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static bool ask_own(uint32_t device, uint64_t *bytes)
{
    bool is_told = reconcile_own_bytes(device, bytes);
    if (!is_told)
        log_line(LOG_INFO, "NVML does not tell what this process holds: what it loads of code is "
                           "estimated");
    return is_told;
}

void code_load_begin(struct code_load *load)
{
    int device;
    load->charge = (struct charge){.device = CHARGE_NONE, .kind = VGPU_KIND_MODULE};
    if (region_open() != REGION_MAPPED || devices_ask_current(&device) != CUDA_SUCCESS ||
        device < 0 || !region_claim())
        return;
    const struct vgpu_usage_slot_device *own = region_counters((uint32_t)device);
    bool is_first = load->tries == 0;
    bool is_told = context_cost_gpu_in_use(&load->held_bytes);
    load->is_quiet =
        is_first && is_told && reconcile_others_stand_still((uint32_t)device, load->held_bytes);
    uint64_t own_bytes;
    load->is_own = is_first && !load->is_quiet && ask_own((uint32_t)device, &own_bytes);
    if (!load->is_own && !is_told)
        return;
    if (load->is_own)
        load->held_bytes = own_bytes;
    load->charged_bytes = counter(&own->bytes);
    load->change_count = counter(&own->count);
    load->charge.device = device;
}

/* Of a growth of the GPU: no more of it is this process's than its figure has beyond the ledger. Managed memory
 * may be in the ledger and not yet there. False where NVML does not tell. */
static bool limit_to_own(uint32_t device, int64_t *grown_bytes)
{
    const struct vgpu_usage_slot_device *own = region_counters(device);
    uint64_t own_bytes;
    if (!ask_own(device, &own_bytes))
        return false;
    int64_t beyond_bytes =
        (int64_t)(own_bytes + usage_kind_bytes(own, VGPU_KIND_MANAGED) - counter(&own->bytes));
    if (beyond_bytes < *grown_bytes)
        *grown_bytes = beyond_bytes;
    return true;
}

/* Measures what it grew by. False where other threads may have a part in that, or nobody can tell. */
static bool measure(struct code_load *load)
{
    uint32_t device = (uint32_t)load->charge.device;
    const struct vgpu_usage_slot_device *own = region_counters(device);
    uint64_t now_bytes;
    bool is_known = load->is_own ? reconcile_own_bytes(device, &now_bytes)
                                 : context_cost_gpu_in_use(&now_bytes);
    int64_t grown_bytes = is_known ? (int64_t)(now_bytes - load->held_bytes) : 0;
    int64_t others_bytes = (int64_t)(counter(&own->bytes) - load->charged_bytes);
    if (others_bytes > 0)
        grown_bytes -= others_bytes;
    if (load->is_quiet)
        load->is_own =
            grown_bytes <= (int64_t)block_known_bytes(device) || limit_to_own(device, &grown_bytes);
    if (grown_bytes < 0)
        grown_bytes = 0;
    if (load->tries == 0 || (uint64_t)grown_bytes < load->least_bytes)
        load->least_bytes = (uint64_t)grown_bytes;
    return is_known && counter(&own->count) == load->change_count;
}

enum code_load_verdict code_load_end(struct code_load *load, CUresult result)
{
    struct charge *charge = &load->charge;
    reconcile_current_soon();
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
