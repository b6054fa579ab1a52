/* Which device of the slice a CUDA device or an NVML handle is. CUDA's numbers are looked up once
 * per process (they do not change after cuInit) and kept; racing first calls store the same. */
#ifndef VGPU_DEVICES_H
#define VGPU_DEVICES_H

#include <stdbool.h>

#include "vgpu/cuda_api.h"
#include "vgpu/nvml_api.h"

#define DEVICE_NOT_OURS (-1)

/* Index in `limits`, or DEVICE_NOT_OURS. The region is mapped. */
int devices_find(CUdevice device);
int devices_find_nvml(nvmlDevice_t device);

/* The device of the calling thread's current context; DEVICE_NOT_OURS without one, too. */
int devices_current(void);

/* True when the calling thread has a current context. */
bool devices_has_context(void);

#endif
