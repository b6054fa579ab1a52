/* Who may use one contended GPU, and when: the arbiter's decisions, without its waiting.
 *
 * Start-time fair queueing by weight over exclusive windows of one quantum, charged by occupancy.
 * A tenant's tag is the time it has occupied the GPU divided by its weight; the tenant that wants
 * the GPU and has the smallest tag is next. A window is occupied from its start to the start of the
 * next tenant's, so work that lasts longer than its window is debt of the one who launched it: its
 * tag is ahead, and it is passed over until the others have caught up. A tenant cannot misreport
 * occupancy in its own favour; what it says (demand, end of its work, yield) decides only when its
 * own windows begin and end.
 *
 * The next window is decided LEAD before the running one ends and begins when the holder's work is
 * predicted to end; no drain is waited for. The holder itself may be next: then its window is
 * extended. A holder that yields, or uses nothing for IDLE_NS, is done before its end; time after
 * that is charged to nobody until somebody wants the GPU again.
 *
 * Turns are taken only where the GPU is not enough: where tenants together want all of it (demand.h)
 * and two of them most of it each. Else all run at once, each under its own cap, and the
 * device's own time slices do the rest. Turns begin after POLICY_SCARCE_NS of want and end after
 * POLICY_ENOUGH_NS without, and what was found stays for the next time that two tenants meet.
 *
 * Who was seen to have used more than its due is withheld: its window stays closed, and for the
 * others it is not there.
 *
 * Pure: time comes as an argument (CLOCK_MONOTONIC, nanoseconds), what tenants say comes through
 * policy_observe, which bounds it, and grants are left in the tenants for the caller to publish.
 * The caller serialises all calls. */
#ifndef VGPU_ARBITER_POLICY_H
#define VGPU_ARBITER_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#ifndef VGPU_CFFI
#include "demand.h"
#include "vgpu/contract.h"
#include "window_times.h"
#endif

#define POLICY_MAX_TENANTS 256
#define POLICY_MODES 4 /* VGPU_GRANT_* are below */

struct policy_tenant {
    /* What it says, bounded; by policy_observe. */
    int64_t demand_ns;
    int64_t busy_until_ns;
    uint64_t yielded_window;
    bool is_present;
    bool is_off;               /* not arbitrated: always free */
    int64_t withheld_until_ns; /* by policy_withhold */
    uint32_t weight;
    struct demand demand;
    /* The grant as it should stand in `limits`; the caller publishes it and clears is_changed. */
    bool is_changed;
    uint64_t mode; /* VGPU_GRANT_* */
    int64_t start_ns;
    int64_t end_ns;
    uint64_t window;
    /* The books. */
    bool is_withheld;
    bool is_active;
    bool wanted;             /* at the last step */
    bool has_lost;           /* a window was what ended that */
    int64_t wanted_ns;       /* when it last did */
    double lag;              /* how far its tag was behind the virtual time then */
    bool has_yielded;        /* this window */
    bool must_ring;          /* it lost a window: its demand counts once it has rung */
    int64_t spent_demand_ns; /* demand up to this was given up by a yield or a loss */
    double tag;              /* occupancy in ns / weight */
    uint64_t occupancy_ns;
    uint64_t window_count;
};

struct policy {
    struct policy_tenant tenants[POLICY_MAX_TENANTS];
    int32_t count;  /* indices below it were used */
    int32_t holder; /* -1: nobody */
    int32_t next;   /* whose window is published and has not begun; -1: not decided */
    uint64_t mode;  /* of all that are not off */
    int64_t mode_ns[POLICY_MODES]; /* time in each, until the last step */
    double tag_now;                /* the virtual time: the tag of whom the GPU is occupied by */
    int64_t charged_ns;            /* the holder is charged up to here */
    int64_t began_ns;              /* the holder is expected to use the GPU from here on */
    int64_t holder_end_ns;         /* of its window, before a yield cut it */
    int64_t done_ns;         /* when the holder was found to need no more; 0: it is not done */
    int64_t floor_ns;        /* the next window cannot begin earlier */
    int64_t alone_since_ns;  /* 0: two or more are active */
    int64_t unlike_since_ns; /* since when the mode is not what demands call for; 0: it is */
    bool is_enough;          /* at the end of the last contention the GPU was enough for all */
    int64_t stepped_ns;
    uint64_t windows;
    uint64_t overruns;
    int64_t longest_overrun_ns;
};

/* Starts with no tenant. */
void policy_init(struct policy *policy);

/* Adds a tenant whose grants go on counting windows from `window`. A weight of 0 counts as 1.
 * Returns its index, or -1 when there are POLICY_MAX_TENANTS. */
int32_t policy_join(struct policy *policy, uint32_t weight, uint64_t window);

/* Removes a tenant; the caller publishes what its grant is from now on. */
void policy_leave(struct policy *policy, int32_t index);

void policy_set_weight(struct policy *policy, int32_t index, uint32_t weight);

/* Gives a tenant nothing until then: neither a window nor a free GPU. */
void policy_withhold(struct policy *policy, int32_t index, int64_t until_ns);

/* Notes what a tenant's `usage` says now and whether it rang since the last time. */
void policy_observe(struct policy *policy, int32_t index, int64_t now_ns,
                    const struct vgpu_usage_device *usage, bool rang, bool is_off);

/* Decides. Returns when to observe and step again at the latest, or POLICY_NEVER: at a ring. */
int64_t policy_step(struct policy *policy, int64_t now_ns);

/* Says whether a tenant that is withheld would have launched a moment ago, by its own books. */
bool policy_asks_in_vain(const struct policy *policy, int32_t index, int64_t now_ns);

/* Says whether a tenant's rings bring news before the time policy_step returned: those of one that
 * waits for its window say only that it still waits. */
bool policy_listens(const struct policy *policy, int32_t index);

#endif
