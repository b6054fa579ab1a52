/* How much of a device the container's processes have used lately, for those who ask NVML.
 *
 * Counters of GPU time only grow, so a reader needs an earlier look at them, and one that asks once
 * (nvidia-smi) has none of its own. So `usage` keeps two: at most every 200 ms somebody who
 * launches or reads notes each slot's GPU time into the older of them. A reader takes the one that
 * gives it a window of about 1/6 to 1 s, as NVML has, and counts slot by slot, so that a process
 * that comes or goes takes nothing along. What is charged and not measured yet counts as far as it
 * is predicted to be done: a kernel longer than the window shows while it runs.
 *
 * Pure: works on any mapped or in-memory `usage`, time is an argument. Samplers elect one of
 * themselves by a compare-and-swap; readers take no part. A sampler that is killed or stopped half
 * way spoils one window of a figure that nothing but displays depends on. */
#ifndef VGPU_UTILISATION_H
#define VGPU_UTILISATION_H

#include <stdint.h>
#ifndef VGPU_CFFI
#include "vgpu/contract.h"
#endif

#define UTILISATION_SAMPLE_NS 200000000
#define UTILISATION_LEAST_NS 166666667
#define UTILISATION_MOST_NS 1000000000

/* From a sample to the moment of reading. */
struct utilisation_window {
    uint64_t now_ns;
    uint64_t length_ns; /* 0: there is no sample yet */
    uint32_t sample;    /* index of the sample it begins at */
};

/* Notes every slot's GPU time if the last sample is old enough. */
void utilisation_sample(void *usage, uint32_t device, uint64_t now_ns);

/* The window that a reader should look at now. */
struct utilisation_window utilisation_window(void *usage, uint32_t device, uint64_t now_ns);

/* What part of the window a slot's process, or all of the container, had of the device: 0..100. */
uint32_t utilisation_of_slot(void *usage, uint32_t slot, uint32_t device,
                             const struct utilisation_window *window);
uint32_t utilisation_of_container(void *usage, uint32_t device,
                                  const struct utilisation_window *window);

#ifndef VGPU_CFFI
/* utilisation_sample for those who come by often. */
static inline void utilisation_note(void *usage, const struct vgpu_usage_device *shared,
                                    uint32_t device, uint64_t now_ns)
{
    uint64_t last_ns = __atomic_load_n(&shared->sampling_ns, __ATOMIC_RELAXED);
    if (__builtin_expect(now_ns - last_ns >= UTILISATION_SAMPLE_NS, 0))
        utilisation_sample(usage, device, now_ns);
}
#endif

#endif
