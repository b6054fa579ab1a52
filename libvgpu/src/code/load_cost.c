#include "code/load_cost.h"

#include <stddef.h>

#include "compute/capture.h"
#include "hooks/real.h"
#include "memory/context_cost.h"
#include "slice/region.h"

static bool taken(uint32_t device, enum load_cost_source source, uint64_t *bytes)
{
    if (source == LOAD_COST_OWN)
        return context_cost_own_bytes(device, bytes);
    size_t free_bytes, total_bytes;
    struct capture_pause pause = capture_pause();
    CUresult result = real.cuMemGetInfo_v2 != NULL ? real.cuMemGetInfo_v2(&free_bytes, &total_bytes)
                                                   : CUDA_ERROR_NOT_SUPPORTED;
    capture_resume(pause);
    if (result == CUDA_SUCCESS)
        *bytes = total_bytes - free_bytes;
    return result == CUDA_SUCCESS;
}

static uint64_t charged(uint32_t device)
{
    return __atomic_load_n(&region_counters(device)->bytes, __ATOMIC_RELAXED);
}

void load_cost_begin(struct load_cost *cost, uint32_t device, bool may_guess)
{
    *cost = (struct load_cost){.device = device};
    if (taken(device, LOAD_COST_OWN, &cost->taken_bytes))
        cost->source = LOAD_COST_OWN;
    else if (may_guess && taken(device, LOAD_COST_FREE, &cost->taken_bytes))
        cost->source = LOAD_COST_FREE;
    cost->charged_bytes = charged(device);
}

bool load_cost_end(const struct load_cost *cost, bool is_bound, uint64_t *bytes)
{
    uint64_t now;
    if (cost->source == LOAD_COST_NONE || !taken(cost->device, cost->source, &now))
        return false;
    int64_t grown = (int64_t)(now - cost->taken_bytes);
    int64_t others = (int64_t)(charged(cost->device) - cost->charged_bytes);
    if (others < 0 || !is_bound)
        grown -= others;
    *bytes = grown > 0 ? (uint64_t)grown : 0;
    return true;
}
