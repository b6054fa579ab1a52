/* Whether the container runtime made a device visible (VGPU_SIM_VISIBLE); CUDA and NVML agree. */
#ifndef VGPU_SIM_VISIBLE_H
#define VGPU_SIM_VISIBLE_H

#include "machine.h"

/* A MIG instance is visible with its GPU, and a GPU with any instance of it. Room without an
 * instance never is. */
bool visible_on_machine(struct sim_machine *machine, uint32_t index);
/* Whether a device is one of the MIG instances of the GPU at `gpu`. */
bool visible_is_instance_of(struct sim_machine *machine, uint32_t index, uint32_t gpu);

#endif
