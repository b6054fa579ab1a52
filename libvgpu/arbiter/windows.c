#include "windows.h"

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A holder that is not done is expected to want more, even while its work keeps it from asking. */
static bool wants(const struct policy *policy, int32_t index, int64_t now_ns)
{
    return (index == policy->holder && policy->done_ns == 0) ||
           policy_demands(&policy->tenants[index], now_ns);
}

static bool another_wants(const struct policy *policy, int32_t index, int64_t now_ns)
{
    for (int32_t i = 0; i < policy->count; i++)
        if (i != index && wants(policy, i, now_ns))
            return true;
    return false;
}

void windows_charge(struct policy *policy, int64_t until_ns)
{
    struct policy_tenant *holder = &policy->tenants[policy->holder];
    int64_t limit_ns = policy->holder_end_ns + POLICY_MOST_DEBT_NS;
    if (policy->done_ns != 0)
        limit_ns = later(policy->done_ns,
                         earlier(holder->busy_until_ns, policy->done_ns + POLICY_MOST_DEBT_NS));
    if (policy->next >= 0)
        limit_ns = policy->tenants[policy->next].start_ns;
    until_ns = earlier(until_ns, limit_ns);
    if (until_ns > policy->charged_ns) {
        int64_t occupied_ns = until_ns - policy->charged_ns;
        holder->tag += (double)occupied_ns / holder->weight;
        holder->occupancy_ns += (uint64_t)occupied_ns;
        policy->charged_ns = until_ns;
    }
    policy->tag_now = holder->tag;
}

static bool is_unused(const struct policy *policy, int64_t now_ns)
{
    const struct policy_tenant *holder = &policy->tenants[policy->holder];
    int64_t since_ns = now_ns - POLICY_IDLE_NS;
    if (policy->began_ns > since_ns || holder->busy_until_ns > now_ns)
        return false;
    return holder->demand_ns < policy->began_ns ||
           (holder->busy_until_ns <= since_ns && holder->demand_ns <= since_ns);
}

/* When is_unused may become true. */
static int64_t unused_at(const struct policy *policy)
{
    const struct policy_tenant *holder = &policy->tenants[policy->holder];
    int64_t at_ns = holder->busy_until_ns;
    if (holder->demand_ns >= policy->began_ns)
        at_ns = later(at_ns, holder->demand_ns) + POLICY_IDLE_NS;
    return later(at_ns, policy->began_ns + POLICY_IDLE_NS);
}

/* Notes that the holder needs no more of its window. */
static void note_done(struct policy *policy, int64_t now_ns)
{
    struct policy_tenant *holder = &policy->tenants[policy->holder];
    if (policy->done_ns != 0)
        return;
    bool has_waiters = another_wants(policy, policy->holder, now_ns);
    if (holder->has_yielded) {
        /* Whether it wants another window is seen by a newer demand. Publishing wakes it, and who
         * waits stores its demand then; who is stopped by his own cap has none, or stores none. */
        if (has_waiters && holder->demand_ns > 0) {
            holder->end_ns = earlier(holder->end_ns, later(now_ns, holder->busy_until_ns));
            holder->is_changed = true;
        }
    } else if (is_unused(policy, now_ns)) {
        holder->spent_demand_ns = holder->demand_ns;
        if (has_waiters) {
            holder->must_ring = true;
            holder->end_ns = earlier(holder->end_ns, now_ns);
            holder->is_changed = true;
        }
    } else {
        return;
    }
    policy->done_ns = now_ns;
    if (policy->next >= 0)
        policy->floor_ns = earlier(policy->floor_ns, now_ns);
}

/* Returns the holder's tag when its window and its work have ended. */
static double final_tag(const struct policy *policy)
{
    const struct policy_tenant *holder = &policy->tenants[policy->holder];
    int64_t end_ns = policy->done_ns != 0 ? policy->done_ns : policy->holder_end_ns;
    end_ns = later(end_ns, earlier(holder->busy_until_ns, end_ns + POLICY_MOST_DEBT_NS));
    int64_t left_ns = later(0, end_ns - policy->charged_ns);
    return holder->tag + (double)left_ns / holder->weight;
}

/* Returns whose window is to be next, or -1 when nobody wants it. Of equals the holder comes last,
 * and first who has less work in flight. */
static int32_t choose(const struct policy *policy, int64_t now_ns)
{
    int32_t chosen = -1;
    double chosen_tag = 0;
    for (int32_t i = 0; i < policy->count; i++) {
        if (i == policy->holder || !wants(policy, i, now_ns))
            continue;
        const struct policy_tenant *tenant = &policy->tenants[i];
        if (chosen < 0 || tenant->tag < chosen_tag ||
            (tenant->tag == chosen_tag &&
             tenant->busy_until_ns < policy->tenants[chosen].busy_until_ns)) {
            chosen = i;
            chosen_tag = tenant->tag;
        }
    }
    if (policy->holder >= 0 && wants(policy, policy->holder, now_ns) &&
        (chosen < 0 || final_tag(policy) < chosen_tag))
        chosen = policy->holder;
    return chosen;
}

static int64_t decide_at(const struct policy *policy, int64_t now_ns)
{
    if (policy->holder < 0)
        return now_ns;
    const struct policy_tenant *holder = &policy->tenants[policy->holder];
    if (policy->done_ns == 0)
        return holder->end_ns - POLICY_LEAD_NS;
    int64_t at_ns =
        earlier(holder->busy_until_ns, policy->done_ns + POLICY_MOST_DEBT_NS) - POLICY_LEAD_NS;
    /* It may have yielded because its next launch did not fit, and is about to say so: given away
     * now, the GPU would go to tenants in turn instead of by weight. */
    if (holder->has_yielded && policy->done_ns - holder->demand_ns < POLICY_IDLE_NS &&
        !policy_demands(holder, now_ns)) {
        int32_t other = choose(policy, now_ns);
        if (other >= 0 && final_tag(policy) < policy->tenants[other].tag)
            at_ns = later(at_ns, policy->done_ns + POLICY_GRACE_NS);
    }
    return at_ns;
}

/* Returns when the next window can begin: when the work of those before it is predicted to end. */
static int64_t next_start(const struct policy *policy, int32_t next, int64_t now_ns)
{
    int64_t busy_ns = 0;
    if (policy->holder >= 0)
        busy_ns = policy->tenants[policy->holder].busy_until_ns;
    else
        for (int32_t i = 0; i < policy->count; i++)
            if (i != next && policy->tenants[i].is_active)
                busy_ns = later(busy_ns, policy->tenants[i].busy_until_ns);
    busy_ns = earlier(busy_ns, policy->floor_ns + POLICY_MOST_DEBT_NS);
    return later(now_ns, later(policy->floor_ns, busy_ns));
}

static void set_next_window(struct policy *policy, int64_t start_ns)
{
    struct policy_tenant *next = &policy->tenants[policy->next];
    next->start_ns = start_ns;
    next->end_ns = start_ns + WINDOW_QUANTUM_NS;
    next->is_changed = true;
    if (policy->holder < 0)
        return;
    struct policy_tenant *holder = &policy->tenants[policy->holder];
    if (holder->end_ns > start_ns) {
        holder->end_ns = start_ns;
        holder->is_changed = true;
    }
}

static void open_window(struct policy *policy, struct policy_tenant *tenant)
{
    tenant->window++;
    tenant->window_count++;
    tenant->has_yielded = false;
    tenant->is_changed = true;
    policy->windows++;
}

static void grant_next(struct policy *policy, int32_t index, int64_t now_ns)
{
    policy->floor_ns = now_ns;
    if (policy->holder >= 0)
        policy->floor_ns = policy->done_ns != 0 ? policy->done_ns : policy->holder_end_ns;
    policy->next = index;
    open_window(policy, &policy->tenants[index]);
    set_next_window(policy, next_start(policy, index, now_ns));
}

/* Lets the holder go on: more of the same window, or a new one where it had given this one up. Its
 * start stays: what the holder measures within its window stays valid. */
static void extend(struct policy *policy, int64_t now_ns)
{
    struct policy_tenant *holder = &policy->tenants[policy->holder];
    int64_t from_ns = later(holder->end_ns, now_ns);
    if (policy->done_ns != 0) {
        from_ns = later(now_ns, earlier(holder->busy_until_ns, now_ns + POLICY_MOST_DEBT_NS));
        policy->charged_ns = later(policy->charged_ns, now_ns);
        policy->began_ns = now_ns;
        policy->done_ns = 0;
        open_window(policy, holder);
    }
    holder->end_ns = policy->holder_end_ns = from_ns + WINDOW_QUANTUM_NS;
    holder->is_changed = true;
}

static void hand_over(struct policy *policy)
{
    const struct policy_tenant *next = &policy->tenants[policy->next];
    if (policy->holder >= 0) {
        windows_charge(policy, next->start_ns);
        int64_t busy_until_ns = policy->tenants[policy->holder].busy_until_ns;
        int64_t overrun_ns = later(next->start_ns, busy_until_ns) - policy->holder_end_ns;
        /* A start that is late because nobody wanted the GPU before is no overrun. */
        if (busy_until_ns - policy->holder_end_ns > POLICY_OVERRUN_NS) {
            policy->overruns++;
            policy->longest_overrun_ns = later(policy->longest_overrun_ns, overrun_ns);
        }
    }
    policy->holder = policy->next;
    policy->next = -1;
    policy->charged_ns = policy->began_ns = next->start_ns;
    policy->holder_end_ns = next->end_ns;
    policy->done_ns = 0;
}

int64_t windows_step(struct policy *policy, int64_t now_ns)
{
    for (;;) {
        if (policy->holder >= 0)
            note_done(policy, now_ns);
        if (policy->next >= 0) {
            const struct policy_tenant *next = &policy->tenants[policy->next];
            if (now_ns >= next->start_ns) {
                hand_over(policy);
                continue;
            }
            int64_t start_ns = next_start(policy, policy->next, now_ns);
            int64_t moved_ns = start_ns - next->start_ns;
            if (moved_ns > POLICY_MOVE_NS || moved_ns < -POLICY_MOVE_NS)
                set_next_window(policy, start_ns);
            if (now_ns >= next->start_ns)
                continue;
            return earlier(next->start_ns, now_ns + POLICY_APPROACH_NS);
        }
        int64_t at_ns = decide_at(policy, now_ns);
        if (now_ns < at_ns)
            return policy->done_ns != 0 ? at_ns : earlier(at_ns, unused_at(policy));
        int32_t chosen = choose(policy, now_ns);
        if (chosen < 0)
            return POLICY_NEVER;
        if (chosen == policy->holder)
            extend(policy, now_ns);
        else
            grant_next(policy, chosen, now_ns);
    }
}
