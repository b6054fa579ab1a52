/*
 * The simulated libnvidia-ml.so.1, inside. Everything is read from the machine at each call; the
 * library keeps nothing but its reference count, the mapping and its users' event sets.
 *
 *   start.c   initialisation, versions     usage.c          memory and processes
 *   handle.c  which devices there are      utilisation.c    how busy in the last sampling window
 *   device.c  what they are                sensors.c        heat, power, clocks
 *   place.c   where they are               memory_errors.c  ECC
 *   link.c    how they are connected       field.c          many of these by number
 *   mig.c     MIG mode and devices         mig_profile.c    what GPUs can be cut into
 *   mig_instance.c, mig_compute.c          what they are cut into, and changing it
 *   board.c   modes and constants          absent.c         what is only there
 *   visible_pid.c                          pids of processes in other PID namespaces
 *   event.c   event sets                   entries.def      all functions, done or not
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
    uint32_t index;         /* of a GPU: among the visible ones */
};

struct nvmlGpuInstance_st {
    uint32_t room; /* of its MIG device: the index on the machine */
};

struct nvmlComputeInstance_st {
    uint32_t room;
};

struct nvml {
    pthread_mutex_t mutex;
    bool is_over; /* the program ends, and whoever calls is aborted (VGPU_SIM_NVML_POISONED) */
    unsigned int references;
    struct sim_machine *machine;
    uint32_t device_count;
    struct nvmlDevice_st devices[SIM_MAX_GPUS]; /* the visible GPUs */
    /* by index on the machine; whatever is there, or nothing, and the same for each process */
    struct nvmlDevice_st rooms[SIM_MAX_DEVICES];
    struct nvmlGpuInstance_st gpu_instances[SIM_MAX_DEVICES];
    struct nvmlComputeInstance_st compute_instances[SIM_MAX_DEVICES];
};

extern struct nvml nvml;

/* Leaves the function with what a call answered, unless that is success. */
#define CHECK(call) \
    do { \
        nvmlReturn_t check_result_ = (call); \
        if (check_result_ != NVML_SUCCESS) \
            return check_result_; \
    } while (0)
#define INVALID_IF(condition) REFUSE_IF(condition, NVML_ERROR_INVALID_ARGUMENT)

/* start.c */
_Noreturn void nvml_abort(void);

/* Asked without the mutex: other threads of the program may start and end the library too. */
static inline bool nvml_is_started(void)
{
    if (__atomic_load_n(&nvml.is_over, __ATOMIC_RELAXED))
        nvml_abort();
    return __atomic_load_n(&nvml.references, __ATOMIC_ACQUIRE) != 0;
}

/* Takes what a call of the table (core/calls.def) costs on a device that can be asked. */
#define NVML_TAKES(device, name) \
    sim_device_nvml_call(sim_machine_device(nvml.machine, (device)->machine_index), SIM_CALL_##name)

/* handle.c */
bool nvml_is_device(nvmlDevice_t device);
/* Whether the GPU has fallen off the bus (a fault on request). */
bool nvml_is_lost(nvmlDevice_t device);
/* NVML_SUCCESS, or what `function` must answer for a device by a fault on request; does not return
 * while that fault is that it hangs. */
nvmlReturn_t nvml_fault(nvmlDevice_t device, const char *function);
/* NVML_SUCCESS, or what a call of `function` with this device must answer. */
nvmlReturn_t nvml_check(nvmlDevice_t device, const void *result, const char *function);
#define NVML_CHECK(device, result) CHECK(nvml_check(device, result, __func__))
/* A function that tells one thing of a GPU, `device`. */
#define TELL(name, type, value) \
    nvmlReturn_t name(nvmlDevice_t device, type *told) \
    { \
        NVML_CHECK(device, told); \
        *told = value; \
        return NVML_SUCCESS; \
    }
const struct sim_device_identity *nvml_identity_of(nvmlDevice_t device);
const struct sim_profile *nvml_profile_of(nvmlDevice_t device);

/* The same for what can be asked of a MIG instance too; anything else is not supported there. */
nvmlReturn_t nvml_check_any(nvmlDevice_t device, const void *result, const char *function);
#define NVML_CHECK_ANY(device, result) NVML_CHECK_ANY_AS(device, result, __func__)
#define NVML_CHECK_ANY_AS(device, result, function) CHECK(nvml_check_any(device, result, function))
/* board.c: opens the machine as a process that may change it; the caller closes it. NULL: it cannot. */
struct sim_machine *nvml_open_to_change(void);

/* mig.c */
/* Whether it is a handle of a MIG device that is there and visible. */
bool nvml_is_instance(nvmlDevice_t device);
/* What a change of MIG answers, from what the machine said. */
nvmlReturn_t nvml_mig_result(int error);
const struct sim_mig_profile *nvml_mig_profile(uint32_t gpu, uint32_t profile);
/* The visible GPU at an index on the machine, NULL: none. */
nvmlDevice_t nvml_device_at(uint32_t gpu);

/* mig_profile.c: the index of the profile that the driver numbers so. */
nvmlReturn_t nvml_find_profile_id(nvmlDevice_t device, unsigned int id, uint32_t *profile);

/* mig_instance.c: the same for handles of GPU instances. */
nvmlReturn_t nvml_check_gpu_instance(nvmlGpuInstance_t instance, const void *result, uint32_t *gpu,
                                     struct sim_mig_instance *found);
bool nvml_is_cut(nvmlDevice_t device); /* a GPU in MIG mode */
/* The devices of the machine whose books a handle shows, itself first: a GPU's instances too. */
unsigned int nvml_parts(nvmlDevice_t device, uint32_t parts[SIM_MAX_DEVICES]);

/* device.c */
void nvml_fill_pci(nvmlPciInfo_t *pci, unsigned int bus, unsigned int pci_device_id);

/* place.c */
/* Fills an array of devices as NVML does: with `*count` 0 it says how many there are, otherwise it
 * gives as many as were asked for and are there. */
nvmlReturn_t nvml_give_devices(const nvmlDevice_t *found, unsigned int found_count,
                               unsigned int *count, nvmlDevice_t *devices);

/* start.c */
nvmlReturn_t nvml_copy_text(char *target, unsigned int length, const char *text);
const char *nvml_driver_version(void);

/* link.c: 0 where there are none */
unsigned int nvml_link_count(nvmlDevice_t device);
unsigned int nvml_link_megabytes_per_second(nvmlDevice_t device);

/* usage.c */
/* Reads the device's books; the caller frees them. NULL: out of memory. */
struct sim_device_books *nvml_read_books(nvmlDevice_t device);
struct sim_device_books *nvml_read_books_at(uint32_t machine_index);

/* utilisation.c */
/* The whole device's busy part of the last window, 0..100. */
unsigned int nvml_busy_percent(const struct sim_device_books *books);
/* The same, for those who need nothing else of the books. */
unsigned int nvml_busy_percent_of(nvmlDevice_t device);
uint64_t nvml_wall_clock_us(uint64_t monotonic_ns);

/* memory_errors.c: counted since the machine was made */
nvmlReturn_t nvml_ecc_errors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                             unsigned long long *errors);

#endif
