/* Which device of the slice a CUDA device or an NVML handle is. CUDA's numbers are looked up once
 * per process (they do not change after cuInit) and kept; racing first calls store the same. */
#ifndef VGPU_DEVICES_H
#define VGPU_DEVICES_H

#include <stdbool.h>

#include "vgpu/cuda_api.h"
#include "vgpu/nvml_api.h"

#define DEVICE_NOT_OURS (-1)

/* There is no such device, no context that says which is meant, or the driver is not initialised:
 * nothing can happen, and the driver's own error is the right answer. */
#define DEVICE_UNKNOWN (-2)

/* Index in `limits`, DEVICE_NOT_OURS or DEVICE_UNKNOWN. The region is mapped. */
int devices_find(CUdevice device);
int devices_find_nvml(nvmlDevice_t device);

/* The device of the calling thread's current context, DEVICE_UNKNOWN without one. */
int devices_current(void);

/* The same for who takes memory on it, now or on a stream (below). An answer that is not
 * CUDA_SUCCESS is the driver's, to a question that it should have been able to answer: the hook
 * hands it to its caller, since memory that is taken after it would be charged to nobody. */
CUresult devices_ask_current(int *device);
CUresult devices_ask_stream(CUstream stream, int *device);
CUresult devices_ask_stream_ordinal(CUstream stream, CUdevice *ordinal, bool *is_known);

/* The context of a stream; for those that are names for the current context's own, the current one.
 * NULL when there is none. */
CUcontext devices_own_context_of(CUstream stream);

/* The same as any thread may have it current: a green context is current to one thread only, so this is the
 * primary context of its streams, if the driver tells it (since CUDA 12.5). */
CUcontext devices_context_of(CUstream stream);

/* The device that work on `stream` uses: its own context's, which need not be the current one. */
int devices_of_stream(CUstream stream);

/* The same as CUDA counts it; false when it cannot be told. */
bool devices_ordinal_of_stream(CUstream stream, CUdevice *ordinal);

/* The device that holds `address`. */
int devices_of_pointer(CUdeviceptr address);

#endif
