/* What a context costs in device memory: said by the host in `limits`, or measured here. */
#ifndef VGPU_CONTEXT_COST_H
#define VGPU_CONTEXT_COST_H

#include <stdbool.h>
#include <stdint.h>

/* The host's estimate for a device of the slice; 0 when it gave none. */
uint64_t context_cost_estimate(uint32_t device);

/* What NVML says this process holds on the device. False where NVML does not know the process (in
 * another PID namespace) or is not there. */
bool context_cost_own_bytes(uint32_t device, uint64_t *bytes);

#endif
