/* What a context costs in device memory before its first allocation.
 *
 * Three sources: what NVML says this process holds, before and after the driver makes the first
 * context; what another process of the container measured so, kept in `usage` (a hint: the tenant
 * can write there, and misleads only itself); what the host says in `limits`. Measuring takes NVML
 * longer than the rest of the hook, so that a measurement of the last second is believed: many
 * processes that start at once do not all repeat it.
 *
 * A pid tells a process only within its PID namespace, and the first process of every container is
 * 1. NVML's figure for our pid is ours for certain where it lists that pid once, and did not before
 * this process had a context. Where it lists several, one of which is ours, the least of them is
 * taken, since each holds a context; where it does not know us, and nobody said anything, the growth
 * of the whole GPU. Both are rough: what others allocate meanwhile only adds, so that of several
 * processes' the least is kept, and no container is refused for good by a rough one.
 *
 * Synchronised by atomics on the two words in `usage`; nobody waits for another process. */
#ifndef VGPU_CONTEXT_COST_H
#define VGPU_CONTEXT_COST_H

#include <stdbool.h>
#include <stdint.h>

/* What to reserve before the driver makes a context: measured in this container, else the host's
 * estimate. False when there is neither, and *bytes 0. */
bool context_cost_estimate(uint32_t device, uint64_t *bytes);

enum context_cost_quality {
    CONTEXT_COST_UNKNOWN,
    CONTEXT_COST_ROUGH, /* others may have a part in it */
    CONTEXT_COST_EXACT
};

/* How well a process of this container has measured it within the last second. */
enum context_cost_quality context_cost_news(uint32_t device);

/* False of what is no measurement next to the host's estimate: nothing, or more than twice as much, of which
 * others have a part. What of it is this process's all the same, reconcile.h finds. */
bool context_cost_is_likely(uint32_t device, uint64_t bytes);

/* Whether the estimate is what somebody measured roughly. */
bool context_cost_is_rough(uint32_t device);

/* Whether the program's end has begun, or the driver's: NVML is not called any more. */
bool context_cost_is_over(void);

/* What NVML shows at one moment: nothing once that is over. */
struct context_cost_sample {
    uint32_t own_count; /* processes of our pid: NVML lists one only while it uses the GPU */
    uint64_t own_bytes; /* what the least of them holds */
    bool is_gpu_known;
    uint64_t gpu_bytes; /* what all hold together */
};

/* Real drivers take 0.1 to 3 ms for each of NVML's two answers, under locks of the kernel driver. _own has this
 * process's figure only. */
struct context_cost_sample context_cost_sample(uint32_t device);
struct context_cost_sample context_cost_sample_own(uint32_t device);

/* What is in use of the current context's GPU, which the CUDA driver tells within microseconds. */
bool context_cost_gpu_in_use(uint64_t *bytes);

/* For fork.c. */
void context_cost_after_fork(void);

/* What the context cost that was made between two samples: in *bytes, unless it is unknown.
 * had_context: this process had made one on the device before. */
enum context_cost_quality context_cost_growth(const struct context_cost_sample *before,
                                              const struct context_cost_sample *after,
                                              bool had_context, uint64_t *bytes);

/* Keeps for the other processes what a process's first context was measured to cost: exactly, or
 * roughly, which returns the least that was found so. */
void context_cost_keep(uint32_t device, uint64_t bytes);
uint64_t context_cost_keep_rough(uint32_t device, uint64_t bytes);

#endif
