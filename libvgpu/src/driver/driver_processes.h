/* The driver's list of the processes that compute on a GPU, whatever form this driver's NVML gives it in.
 *
 * `nvmlDeviceGetComputeRunningProcesses_v2` comes first: its entries have 24 bytes on every driver that
 * has it. `_v3` is missing before R510 and on some drivers of R535, and others of R535 write 32 bytes an
 * entry under that name. Room is given for longer ones still, and what was written tells how long they are.
 * No lock; the length, once known, is kept. */
#ifndef VGPU_DRIVER_PROCESSES_H
#define VGPU_DRIVER_PROCESSES_H

#include <stddef.h>

#include "vgpu/nvml_api.h"

#define DRIVER_BYTES_UNKNOWN ((unsigned long long)-1) /* NVML_VALUE_NOT_AVAILABLE */

/* Gets one process: its pid as the driver tells it here, and what it holds, if that is known. */
typedef void (*driver_process_look)(void *context, unsigned int pid, unsigned long long bytes);

/* Shows each process to `look`, however many there are. Returns what NVML answered. */
nvmlReturn_t driver_processes(nvmlDevice_t handle, driver_process_look look, void *context);

/* How long the entries of the lists `_v3` are on this driver; as in NVML's own header where the GPU has no
 * process that would tell. */
size_t driver_processes_third_entry_bytes(nvmlDevice_t handle);

#endif
