#include "compute/ration.h"

static uint64_t next_random(uint64_t value) /* xorshift */
{
    value ^= value << 13;
    value ^= value >> 7;
    return value ^ value << 17;
}

void ration_begin(struct ration *ration, int64_t gpu_ns, int64_t now_ns)
{
    ration->random = next_random(ration->random != 0 ? ration->random : (uint64_t)now_ns | 1);
    ration->charged_ns = 0;
    ration->due_ns = gpu_ns / 2 + (int64_t)(ration->random % (uint64_t)gpu_ns);
    ration->last_ns = now_ns;
}

void ration_charge(struct ration *ration, int64_t gpu_ns, int64_t now_ns)
{
    ration->charged_ns += gpu_ns;
    ration->until_ns = (ration->until_ns > now_ns ? ration->until_ns : now_ns) + gpu_ns;
}

void ration_hurry(struct ration *ration)
{
    ration->due_ns = 0;
}

bool ration_is_due(const struct ration *ration, int64_t now_ns)
{
    return ration->charged_ns >= ration->due_ns && now_ns - ration->last_ns >= RATION_LEAST_NS;
}

int64_t ration_left_ns(const struct ration *ration)
{
    /* Due, and too early: a little at a time, so that the clock is looked at again. */
    int64_t left_ns = ration->due_ns - ration->charged_ns;
    return left_ns > RATION_LEAST_NS / 4 ? left_ns : RATION_LEAST_NS / 4;
}

int64_t ration_backlog_ns(const struct ration *ration, int64_t now_ns)
{
    return ration->until_ns > now_ns ? ration->until_ns - now_ns : 0;
}
