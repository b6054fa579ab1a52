/* What the driver says of the container's own processes where their launches are not measured: on a
 * device without a core cap, and under MPS.
 *
 * Some drivers name processes by the host's pids, others by those of the namespace that asks. Where one of
 * ours stands in the driver's list by the pid that we know it by, and nobody else by the same, the two count
 * alike and the driver's samples can be sorted; else it cannot be told whose they are. No state. */
#ifndef VGPU_OWN_SAMPLES_H
#define VGPU_OWN_SAMPLES_H

#include <stdbool.h>

#include "slice/slot_processes.h"
#include "vgpu/nvml_api.h"

#define OWN_SAMPLES_MOST 256

/* Fills `kept` (room for OWN_SAMPLES_MOST) with those of `own` that are newer than `since_us`.
 * False when it cannot be told which they are. */
bool own_samples(nvmlDevice_t handle, const struct process *own, uint32_t own_count,
                 unsigned long long since_us, nvmlProcessUtilizationSample_t *kept,
                 unsigned int *count);

#endif
