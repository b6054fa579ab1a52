#include "demand.h"

#define MOST_CHARGED_NS 2000000000 /* a kernel that is longer is a hang or a lie */
#define MOST_STALLED_PART 0.5      /* more of it, and what is waited for may not be charged yet */
#define LEAST_PART 0.001           /* of the GPU: less is nothing */

/* How far a counter went on, which a tenant may have set to anything. */
static int64_t passed(uint64_t now, uint64_t before)
{
    uint64_t by = now > before ? now - before : 0;
    return by < MOST_CHARGED_NS ? (int64_t)by : MOST_CHARGED_NS;
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void demand_note(struct demand *demand, uint64_t charged_ns, uint64_t stalled_ns, int64_t now_ns)
{
    int64_t passed_ns = now_ns - demand->noted_ns;
    if (demand->noted_ns != 0 && passed_ns < DEMAND_LOOK_NS)
        return;
    if (demand->noted_ns != 0) {
        double weight = (double)passed_ns / (double)(passed_ns + DEMAND_AVERAGE_NS);
        int64_t unused_ns =
            lesser(demand->unused_ns + passed(charged_ns, demand->charged_ns), MOST_CHARGED_NS);
        int64_t used_ns = lesser(unused_ns, passed_ns);
        int64_t stall_ns = lesser(passed(stalled_ns, demand->stalled_ns), passed_ns);
        demand->unused_ns = unused_ns - used_ns;
        demand->known_part += weight * (1 - demand->known_part);
        demand->used_part += weight * ((double)used_ns / (double)passed_ns - demand->used_part);
        demand->stalled_part +=
            weight * ((double)stall_ns / (double)passed_ns - demand->stalled_part);
    }
    demand->noted_ns = now_ns;
    demand->charged_ns = charged_ns;
    demand->stalled_ns = stalled_ns;
}

double demand_wanted(const struct demand *demand)
{
    if (demand->charged_ns == 0 || demand->known_part == 0)
        return 1;
    double used_part = demand->used_part / demand->known_part;
    double stalled_part = demand->stalled_part / demand->known_part;
    if (used_part < LEAST_PART)
        return stalled_part < MOST_STALLED_PART ? 0 : 1;
    return used_part < 1 - stalled_part ? used_part / (1 - stalled_part) : 1;
}

bool demand_is_alive(const struct demand *demand)
{
    return demand->used_part >= LEAST_PART || demand->stalled_part >= MOST_STALLED_PART;
}
