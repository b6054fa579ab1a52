#include "policy.h"

#include <string.h>

#include "windows.h"

/* Parts of the GPU that are as good as all of it: to begin turns, and to go on with them. */
#define SCARCE 0.95
#define SCARCE_STILL 0.88
#define MOST_OF_IT 0.75
#define FUTURE_NS 1000000 /* a clock read by another CPU may be a little ahead of ours */

void policy_init(struct policy *policy)
{
    memset(policy, 0, sizeof *policy);
    policy->holder = policy->next = -1;
}

int32_t policy_join(struct policy *policy, uint32_t weight, uint64_t window)
{
    int32_t index = 0;
    while (index < policy->count && policy->tenants[index].is_present)
        index++;
    if (index == POLICY_MAX_TENANTS)
        return -1;
    if (index == policy->count)
        policy->count++;
    struct policy_tenant *tenant = &policy->tenants[index];
    memset(tenant, 0, sizeof *tenant);
    tenant->is_present = true;
    tenant->window = window;
    policy_set_weight(policy, index, weight);
    return index;
}

void policy_set_weight(struct policy *policy, int32_t index, uint32_t weight)
{
    policy->tenants[index].weight = weight == 0 ? 1 : weight;
}

static void drop(struct policy *policy, int32_t index)
{
    if (policy->holder == index) {
        policy->holder = -1;
        policy->done_ns = 0;
    }
    if (policy->next == index)
        policy->next = -1;
}

void policy_leave(struct policy *policy, int32_t index)
{
    drop(policy, index);
    memset(&policy->tenants[index], 0, sizeof policy->tenants[index]);
}

void policy_withhold(struct policy *policy, int32_t index, int64_t until_ns)
{
    policy->tenants[index].withheld_until_ns = until_ns;
}

void policy_observe(struct policy *policy, int32_t index, int64_t now_ns,
                    const struct vgpu_usage_device *usage, bool rang, bool is_off)
{
    struct policy_tenant *tenant = &policy->tenants[index];
    uint64_t now = (uint64_t)now_ns;
    uint64_t demand = usage->demand_ns, busy = usage->busy_until_ns;
    if (demand > now)
        demand = demand - now > FUTURE_NS ? 0 : now;
    tenant->demand_ns = (int64_t)demand;
    tenant->busy_until_ns = busy > now && busy - now > POLICY_MOST_BUSY_NS ? 0 : (int64_t)busy;
    tenant->yielded_window = usage->yielded_window;
    tenant->is_off = is_off;
    demand_note(&tenant->demand, usage->charged_ns, usage->stalled_ns, now_ns);
    if (rang)
        tenant->must_ring = false;
    if (tenant->yielded_window == tenant->window && !tenant->has_yielded) {
        tenant->has_yielded = true;
        tenant->spent_demand_ns = tenant->demand_ns;
    }
}

/* Whoever has a free GPU to himself moves the virtual time on too, so that neither old debts nor
 * the credit of a long absence come into the next contention. */
static void charge_alone(struct policy *policy, int64_t now_ns)
{
    struct policy_tenant *alone = NULL;
    for (int32_t i = 0; i < policy->count; i++) {
        if (!policy->tenants[i].is_active)
            continue;
        if (alone != NULL)
            return;
        alone = &policy->tenants[i];
    }
    if (alone == NULL || policy->stepped_ns == 0)
        return;
    alone->tag += (double)(now_ns - policy->stepped_ns) / alone->weight;
    policy->tag_now = alone->tag;
}

/* How far behind the virtual time one that comes back may stay. */
static double kept_lag(const struct policy_tenant *tenant, int64_t now_ns)
{
    double credit = (double)POLICY_CREDIT_NS / tenant->weight;
    if (tenant->has_lost && tenant->lag > credit && now_ns - tenant->wanted_ns < POLICY_PAUSE_NS)
        return tenant->lag;
    return tenant->is_active ? credit : 0;
}

/* Finds who is active and who wants the GPU, and raises the tags of those that come back: nobody
 * saves up time that he did not want. Returns how many are active. */
static int32_t note_demands(struct policy *policy, int64_t now_ns)
{
    int32_t active_count = 0;
    for (int32_t i = 0; i < policy->count; i++) {
        struct policy_tenant *tenant = &policy->tenants[i];
        bool is_active = tenant->is_present && !tenant->is_off && !tenant->is_withheld &&
                         (policy_is_fresh(tenant, now_ns) || tenant->busy_until_ns > now_ns ||
                          (policy->mode != VGPU_GRANT_WINDOWS && demand_is_alive(&tenant->demand)));
        bool wanted = policy_demands(tenant, now_ns);
        if ((is_active && !tenant->is_active) || (wanted && !tenant->wanted)) {
            double least_tag = policy->tag_now - kept_lag(tenant, now_ns);
            tenant->tag = tenant->tag < least_tag ? least_tag : tenant->tag;
        }
        if (tenant->wanted && !wanted)
            tenant->has_lost = tenant->must_ring;
        if (wanted) {
            tenant->wanted_ns = now_ns;
            tenant->lag = policy->tag_now - tenant->tag;
        }
        tenant->is_active = is_active;
        tenant->wanted = wanted;
        active_count += is_active;
    }
    return active_count;
}

/* Says whether active tenants together want `most` of the GPU, and two of them most of it. Who
 * wants less cannot fill windows: it would lose them, and what it wants of others is little. */
static bool is_scarce(const struct policy *policy, double most)
{
    double wanted = 0;
    int32_t claimants = 0;
    for (int32_t i = 0; i < policy->count; i++) {
        const struct policy_tenant *tenant = &policy->tenants[i];
        if (!tenant->is_active)
            continue;
        double part = demand_wanted(&tenant->demand);
        wanted += part;
        claimants += part >= most * MOST_OF_IT;
    }
    return wanted >= most && claimants >= 2;
}

/* True while the shim of an active tenant tells nothing of its demand. One that is older than
 * VGPU_GRANT_SHARED takes that for a closed window, so there are turns as long as it is active. */
static bool is_any_silent(const struct policy *policy)
{
    for (int32_t i = 0; i < policy->count; i++)
        if (policy->tenants[i].is_active && policy->tenants[i].demand.charged_ns == 0)
            return true;
    return false;
}

/* Chooses between turns and none while several are active. */
static uint64_t contended_mode(struct policy *policy, int64_t now_ns)
{
    if (is_any_silent(policy)) {
        policy->unlike_since_ns = 0;
        return VGPU_GRANT_WINDOWS;
    }
    if (policy->mode == VGPU_GRANT_FREE || policy->mode == VGPU_GRANT_NONE) {
        policy->unlike_since_ns = 0;
        return policy->is_enough ? VGPU_GRANT_SHARED : VGPU_GRANT_WINDOWS;
    }
    bool has_turns = policy->mode == VGPU_GRANT_WINDOWS;
    if (is_scarce(policy, has_turns ? SCARCE_STILL : SCARCE) == has_turns)
        policy->unlike_since_ns = 0;
    else if (policy->unlike_since_ns == 0)
        policy->unlike_since_ns = now_ns;
    int64_t patience_ns = has_turns ? POLICY_ENOUGH_NS : POLICY_SCARCE_NS;
    if (policy->unlike_since_ns == 0 || now_ns - policy->unlike_since_ns < patience_ns)
        return policy->mode;
    policy->unlike_since_ns = 0;
    policy->is_enough = has_turns;
    return has_turns ? VGPU_GRANT_SHARED : VGPU_GRANT_WINDOWS;
}

static void close_grant(struct policy *policy, int32_t index, uint64_t mode)
{
    struct policy_tenant *tenant = &policy->tenants[index];
    drop(policy, index);
    tenant->mode = mode;
    tenant->start_ns = tenant->end_ns = 0;
    tenant->is_changed = true;
}

static void set_modes(struct policy *policy)
{
    for (int32_t i = 0; i < policy->count; i++) {
        const struct policy_tenant *tenant = &policy->tenants[i];
        uint64_t mode = tenant->is_off        ? VGPU_GRANT_FREE
                        : tenant->is_withheld ? VGPU_GRANT_WINDOWS
                                              : policy->mode;
        if (tenant->is_present && tenant->mode != mode)
            close_grant(policy, i, mode);
    }
}

/* Finds who is withheld now. Returns when the first of them is no more, or POLICY_NEVER. */
static int64_t note_withheld(struct policy *policy, int64_t now_ns)
{
    int64_t first_ns = POLICY_NEVER;
    for (int32_t i = 0; i < policy->count; i++) {
        struct policy_tenant *tenant = &policy->tenants[i];
        bool is_withheld =
            tenant->is_present && !tenant->is_off && now_ns < tenant->withheld_until_ns;
        if (is_withheld && !tenant->is_withheld)
            close_grant(policy, i, VGPU_GRANT_WINDOWS);
        tenant->is_withheld = is_withheld;
        if (is_withheld && tenant->withheld_until_ns < first_ns)
            first_ns = tenant->withheld_until_ns;
    }
    return first_ns;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t policy_step(struct policy *policy, int64_t now_ns)
{
    if (policy->mode != VGPU_GRANT_WINDOWS)
        charge_alone(policy, now_ns);
    else if (policy->holder >= 0)
        windows_charge(policy, now_ns);
    if (policy->stepped_ns != 0)
        policy->mode_ns[policy->mode] += now_ns - policy->stepped_ns;
    policy->stepped_ns = now_ns;
    int64_t given_back_ns = note_withheld(policy, now_ns);
    int32_t active_count = note_demands(policy, now_ns);
    if (active_count >= 2)
        policy->alone_since_ns = 0;
    else if (policy->alone_since_ns == 0)
        policy->alone_since_ns = now_ns;
    if (active_count >= 2)
        policy->mode = contended_mode(policy, now_ns);
    else if (policy->mode == VGPU_GRANT_NONE || policy->mode == VGPU_GRANT_FREE ||
             now_ns - policy->alone_since_ns >= POLICY_ALONE_NS)
        policy->mode = VGPU_GRANT_FREE;
    set_modes(policy);
    int64_t at_ns = POLICY_NEVER;
    if (policy->mode == VGPU_GRANT_SHARED)
        at_ns = now_ns + POLICY_SHARED_LOOK_NS;
    else if (policy->mode == VGPU_GRANT_WINDOWS)
        at_ns = windows_step(policy, now_ns);
    else if (active_count > 0)
        at_ns = now_ns + POLICY_LOOK_NS;
    if (policy->mode == VGPU_GRANT_WINDOWS || given_back_ns != POLICY_NEVER)
        at_ns = earlier(at_ns, earlier(given_back_ns, now_ns + POLICY_BEAT_NS));
    return at_ns;
}

bool policy_asks_in_vain(const struct policy *policy, int32_t index, int64_t now_ns)
{
    const struct policy_tenant *tenant = &policy->tenants[index];
    return tenant->is_withheld && now_ns - tenant->demand_ns < POLICY_LOOK_NS + POLICY_FRESH_NS;
}

bool policy_listens(const struct policy *policy, int32_t index)
{
    if (policy->tenants[index].is_withheld)
        return false;
    return policy->mode != VGPU_GRANT_WINDOWS || index == policy->holder ||
           !policy->tenants[index].wanted;
}
