/* Whether the container runtime made a device visible (VGPU_SIM_VISIBLE); CUDA and NVML agree. */
#ifndef VGPU_SIM_VISIBLE_H
#define VGPU_SIM_VISIBLE_H

#include <stdbool.h>

bool visible_on_machine(const char *uuid);

#endif
