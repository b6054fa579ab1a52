/* The arbiter of one GPU: policy.h on a thread of its own, which waits for rings, changes and due
 * times, and publishes grants (tenant_files.h). It never calls into Python.
 *
 * The thread holds the arbiter's mutex for a turn, never while it waits; everybody else takes it
 * for the length of a call and then wakes the thread by an eventfd. A GPU that nobody uses costs
 * nothing: no timer is set then. */
#ifndef VGPU_ARBITER_H
#define VGPU_ARBITER_H

#include <stdbool.h>
#include <stdint.h>
#ifndef VGPU_CFFI
#include "policy.h"
#endif

struct arbiter;

struct arbiter_counters {
    uint64_t wakes;
    uint64_t windows;
    uint64_t overruns;
    int64_t longest_overrun_ns;
    uint64_t mode;                 /* VGPU_GRANT_*: how the GPU is shared now */
    int64_t mode_ns[POLICY_MODES]; /* for how long it was in each mode, by VGPU_GRANT_* */
};

struct arbiter_tenant_counters {
    uint64_t occupancy_ns; /* of the GPU, while it was contended */
    uint64_t windows;
    bool is_active;
    double wanted_part; /* of the GPU, as demand.h tells; 0 while it is not active */
};

/* Starts an arbiter without tenants. Returns 0 or a negative errno. */
int arbiter_start(struct arbiter **started);

/* Tells all tenants to keep to their own caps, ends the thread and frees everything. */
void arbiter_stop(struct arbiter *arbiter);

/* Takes a tenant in; for the descriptors and errors see tenant_files_open. Returns its index, or a
 * negative errno: -ENOSPC when there are POLICY_MAX_TENANTS. */
int arbiter_add(struct arbiter *arbiter, int limits_fd, int usage_fd, int ring_fd,
                uint32_t device_index);

/* Lets a tenant go, who then keeps to its own cap. `index` is one that arbiter_add returned. */
void arbiter_remove(struct arbiter *arbiter, int index);

/* Gives a tenant nothing of the GPU for so long; 0 ends that. Returns whether it was withheld
 * already, and would have launched a moment ago. */
bool arbiter_withhold(struct arbiter *arbiter, int index, int64_t for_ns);

void arbiter_count(struct arbiter *arbiter, struct arbiter_counters *counters);
void arbiter_count_tenant(struct arbiter *arbiter, int index,
                          struct arbiter_tenant_counters *counters);

#endif
