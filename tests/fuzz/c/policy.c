/* The arbiter's policy with tenants that come, go and say anything: nobody's window overlaps
 * another's or lies out of bounds, and what was handed out is never more than there was. */
#include "input.h"

#include <math.h>

#include "policy.h"

#define START_NS 1000000000000
#define TENANTS 6
#define STEPS 400

struct run {
    struct policy policy;
    int64_t now_ns, first_ns;
    bool is_there[TENANTS];
};

/* A moment as a tenant may say it: close to now, or anything. */
static uint64_t moment(struct run *run, struct input *input)
{
    uint64_t how = take(input, 1);
    if (how < 128)
        return (uint64_t)run->now_ns + take(input, 3) * 64 - ((uint64_t)how << 18);
    return how < 192 ? take_odd(input) : (uint64_t)run->now_ns;
}

static void observe(struct run *run, struct input *input, int32_t index)
{
    static uint64_t charged_ns[TENANTS], stalled_ns[TENANTS];
    uint64_t how = take(input, 1);
    struct vgpu_usage_device usage = {.demand_ns = how & 1 ? (uint64_t)run->now_ns : 0};
    if (how & 2)
        usage.demand_ns = moment(run, input);
    if (how & 4)
        usage.busy_until_ns = moment(run, input);
    if (how & 8)
        usage.yielded_window = how & 16 ? run->policy.tenants[index].window : take_odd(input);
    if (how & 32)
        charged_ns[index] += how & 64 ? take_odd(input) : take(input, 4);
    if (how & 64)
        stalled_ns[index] += take(input, 4);
    usage.charged_ns = charged_ns[index];
    usage.stalled_ns = stalled_ns[index];
    policy_observe(&run->policy, index, run->now_ns, &usage, how & 1, (how & 0x90) == 0x90);
    double wanted = demand_wanted(&run->policy.tenants[index].demand);
    HOLDS(wanted >= 0 && wanted <= 1);
}

static void check(const struct run *run)
{
    const struct policy *policy = &run->policy;
    uint64_t occupied_ns = 0, in_modes_ns = 0;
    int32_t in_window = 0;
    HOLDS(policy->holder >= -1 && policy->holder < policy->count);
    HOLDS(policy->next >= -1 && policy->next < policy->count);
    HOLDS(policy->mode < POLICY_MODES);
    for (uint64_t mode = 0; mode < POLICY_MODES; mode++)
        in_modes_ns += (uint64_t)policy->mode_ns[mode];
    HOLDS(in_modes_ns == (uint64_t)(run->now_ns - run->first_ns));
    for (int32_t i = 0; i < policy->count; i++) {
        const struct policy_tenant *tenant = &policy->tenants[i];
        HOLDS(isfinite(tenant->tag));
        occupied_ns += tenant->occupancy_ns;
        if (!tenant->is_present || tenant->mode != VGPU_GRANT_WINDOWS)
            continue;
        HOLDS(tenant->start_ns >= 0 && tenant->end_ns >= 0);
        HOLDS(tenant->end_ns <=
              run->now_ns + 2 * (int64_t)POLICY_MOST_DEBT_NS + 2 * (int64_t)WINDOW_QUANTUM_NS);
        in_window += tenant->start_ns <= run->now_ns && run->now_ns < tenant->end_ns;
    }
    HOLDS(in_window <= 1);
    HOLDS(occupied_ns <= (uint64_t)(run->now_ns - run->first_ns));
}

static void step(struct run *run, struct input *input)
{
    run->now_ns += (int64_t)(take(input, 1) < 16 ? take(input, 5) : take(input, 3));
    if (run->first_ns == 0)
        run->first_ns = run->now_ns;
    int64_t at_ns = policy_step(&run->policy, run->now_ns);
    HOLDS(at_ns > run->now_ns); /* or the arbiter's thread would not rest */
    check(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    struct run run = {.now_ns = START_NS};
    policy_init(&run.policy);
    for (int i = 0; i < STEPS && input.at < input.end; i++) {
        uint64_t what = take(&input, 1);
        int32_t index = (int32_t)(what / 8 % TENANTS);
        if (!run.is_there[index]) {
            int32_t joined = policy_join(&run.policy, (uint32_t)take_odd(&input), take(&input, 1));
            HOLDS(joined >= 0 && joined < TENANTS && !run.is_there[joined]);
            run.is_there[joined] = true;
        } else if (what % 8 == 0) {
            policy_leave(&run.policy, index);
            run.is_there[index] = false;
        } else if (what % 8 == 1) {
            policy_set_weight(&run.policy, index, (uint32_t)take_odd(&input));
        } else if (what % 8 < 5) {
            observe(&run, &input, index);
        } else {
            policy_listens(&run.policy, index);
            step(&run, &input);
        }
    }
    return 0;
}
