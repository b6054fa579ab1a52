/* The windows of a contended GPU (policy.h has the algorithm): when the running one ends, whose is
 * next, when that begins, and what each is charged. Only policy.c calls this.
 *
 * A window goes through: published (policy->next), begun (policy->holder), and done when its holder
 * yields it or leaves it unused. Pure; the caller serialises. */
#ifndef VGPU_ARBITER_WINDOWS_H
#define VGPU_ARBITER_WINDOWS_H

#include "policy.h"

/* Charges the holder for the GPU up to `until_ns`, but not for time in which it kept it from
 * nobody, and for no more than POLICY_MOST_DEBT_NS beyond its window. */
void windows_charge(struct policy *policy, int64_t until_ns);

/* Decides what is due. Returns when to come again, or POLICY_NEVER: when somebody wants the GPU. */
int64_t windows_step(struct policy *policy, int64_t now_ns);

static inline bool policy_is_fresh(const struct policy_tenant *tenant, int64_t now_ns)
{
    return tenant->demand_ns > 0 && now_ns - tenant->demand_ns < POLICY_FRESH_NS;
}

/* Says whether a tenant asks for the GPU: it wanted it a moment ago and has not given it up. */
static inline bool policy_demands(const struct policy_tenant *tenant, int64_t now_ns)
{
    return tenant->is_present && !tenant->is_off && !tenant->is_withheld && !tenant->must_ring &&
           policy_is_fresh(tenant, now_ns) && tenant->demand_ns > tenant->spent_demand_ns;
}

#endif
