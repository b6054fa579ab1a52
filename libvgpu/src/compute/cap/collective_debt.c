#include "compute/cap/collective_debt.h"

#include "compute/cap/virtual_time.h"

#define FULL_PERCENT 100

static void put_off(struct collective_debt *debt, int64_t put_off_ns)
{
    if (put_off_ns > COLLECTIVE_DEBT_NS)
        put_off_ns = COLLECTIVE_DEBT_NS;
    debt->put_off_ns = put_off_ns > 0 ? put_off_ns : 0;
}

void collective_debt_correct(struct collective_debt *debt, uint32_t percent, int64_t gpu_ns)
{
    put_off(debt, debt->put_off_ns + virtual_time_cost_ns(gpu_ns, percent) - gpu_ns);
}

void collective_debt_part(struct collective_debt *debt, uint32_t percent, int64_t gpu_ns,
                          int64_t now_ns)
{
    if (debt->parts == 0 || debt->parts >= COLLECTIVE_ROUND_PARTS)
        debt->put_off_ns -= debt->put_off_ns * percent / (2 * FULL_PERCENT);
    debt->parts++;
    debt->part_ns = now_ns;
    collective_debt_correct(debt, percent, gpu_ns);
}

void collective_debt_end_round(struct collective_debt *debt)
{
    debt->parts = 0;
}

void collective_debt_bound(struct collective_debt *debt, int64_t ahead_ns, int64_t now_ns)
{
    bool is_over = now_ns - debt->part_ns > COLLECTIVE_PAUSE_NS;
    if (debt->put_off_ns > ahead_ns || is_over)
        put_off(debt, is_over ? 0 : ahead_ns);
}
