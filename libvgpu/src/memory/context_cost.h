/* What a context costs in device memory before its first allocation.
 *
 * Three sources: what NVML says this process holds, before and after the driver makes the first
 * context; what another process of the container measured so, kept in `usage` (a hint: the tenant
 * can write there, and misleads only itself); what the host says in `limits`. Measuring takes NVML
 * longer than the rest of the hook, so that a measurement of the last second is believed: many
 * processes that start at once do not all repeat it.
 *
 * Where NVML does not know this process (in another PID namespace) and nobody said anything, the
 * growth of the whole GPU is taken, of several processes' the least: what else is allocated there
 * meanwhile only adds.
 *
 * Synchronised by atomics on the two words in `usage`; nobody waits for another process. */
#ifndef VGPU_CONTEXT_COST_H
#define VGPU_CONTEXT_COST_H

#include <stdbool.h>
#include <stdint.h>

/* What to reserve before the driver makes a context: measured in this container, else the host's
 * estimate. False when there is neither, and *bytes 0. */
bool context_cost_estimate(uint32_t device, uint64_t *bytes);

/* Whether a process of this container has measured it within the last second. */
enum context_cost_news {
    CONTEXT_COST_OLD,
    CONTEXT_COST_ROUGH, /* from the growth of the whole GPU */
    CONTEXT_COST_EXACT
};
enum context_cost_news context_cost_news(uint32_t device);

/* What NVML shows at one moment. */
struct context_cost_sample {
    bool is_own_known; /* what this process holds; NVML lists it only while it uses the GPU */
    bool is_gpu_known; /* what all hold together */
    uint64_t own_bytes;
    uint64_t gpu_bytes;
};

struct context_cost_sample context_cost_sample(uint32_t device);

/* What was allocated in this process between two samples. False when NVML does not know this
 * process: then nothing can be said, or the process it lists by our pid is somebody else. */
bool context_cost_own_growth(const struct context_cost_sample *before,
                             const struct context_cost_sample *after, uint64_t *bytes);

/* Keeps for the other processes what a process's first context was measured to cost: exactly, or
 * from the growth of the whole GPU, which returns the least that was found so. */
void context_cost_keep(uint32_t device, uint64_t bytes);
uint64_t context_cost_keep_rough(uint32_t device, uint64_t bytes);

/* What NVML says this process holds on the device. False where NVML does not know the process (in
 * another PID namespace) or is not there. */
bool context_cost_own_bytes(uint32_t device, uint64_t *bytes);

#endif
