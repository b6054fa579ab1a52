/*
 * The simulated libnvidia-ml.so.1, inside. Everything is read from the machine at each call; the
 * library keeps nothing but its reference count and the mapping.
 */
#ifndef VGPU_SIM_NVML_H
#define VGPU_SIM_NVML_H

#include <pthread.h>
#include <stdbool.h>

#pragma GCC visibility push(default)
#include "vgpu/nvml_api.h"
#pragma GCC visibility pop

#include "machine.h"

struct nvmlDevice_st {
    uint32_t machine_index; /* also the minor number */
    uint32_t index;         /* among the visible ones */
};

struct nvml {
    pthread_mutex_t mutex;
    unsigned int references;
    struct sim_machine *machine;
    uint32_t device_count;
    struct nvmlDevice_st devices[SIM_MAX_DEVICES];
};

extern struct nvml nvml;

bool nvml_is_device(nvmlDevice_t device);
/* NVML_SUCCESS, or what a call with this device must answer. */
nvmlReturn_t nvml_check(nvmlDevice_t device, const void *result);
#define NVML_CHECK(device, result) \
    do { \
        nvmlReturn_t nvml_check_ = nvml_check(device, result); \
        if (nvml_check_ != NVML_SUCCESS) \
            return nvml_check_; \
    } while (0)
nvmlReturn_t nvml_copy_text(char *target, unsigned int length, const char *text);
/* Reads the device's books; the caller frees them. NULL: out of memory. */
struct sim_device_books *nvml_read_books(nvmlDevice_t device);
/* The whole device's busy part of the last window, 0..100. */
unsigned int nvml_busy_percent(const struct sim_device_books *books);

#endif
