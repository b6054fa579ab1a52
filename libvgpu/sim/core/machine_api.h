/*
 * A simulated machine as its makers and readers see it: create one, list its devices, read their
 * books. Read by C and, through cffi, by libvgpu/sim/machine.py; plain declarations only.
 *
 * A machine is one file, `machine`, in a directory of its own, mapped by every process that uses
 * it. Functions return 0 or a negative errno unless they say otherwise.
 */
#ifndef VGPU_SIM_MACHINE_API_H
#define VGPU_SIM_MACHINE_API_H

#ifndef VGPU_CFFI
#include <stddef.h>
#include <stdint.h>
#endif

#define SIM_MAX_DEVICES 16
#define SIM_PROCESS_SLOTS 256

/* What a model of GPU is like. Sizes in bytes, rates a second. */
struct sim_profile {
    char name[32];    /* "a100-80g" */
    char product[64]; /* what NVML and CUDA call it */
    uint64_t memory_bytes;
    uint64_t context_bytes; /* what each context on it costs */
    uint64_t memory_bytes_per_second;
    uint64_t pcie_bytes_per_second;
    uint64_t l2_bytes;
    uint32_t sm_count;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t cores_per_sm;
    uint32_t threads_per_sm;
    uint32_t blocks_per_sm;
    uint32_t shared_bytes_per_sm;
    uint32_t shared_bytes_per_block; /* the most a block can opt in to */
    uint32_t clock_khz;
    uint32_t memory_clock_khz;
    uint32_t memory_bus_bits;
    uint32_t power_limit_milliwatts;
    uint32_t pci_device_id; /* device in the high half, vendor in the low */
    uint32_t reserved;
};

/* One GPU of a machine. */
struct sim_device_identity {
    struct sim_profile profile;
    char uuid[64]; /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
    char serial[32];
    uint32_t pci_bus;
    int32_t numa_node;
};

/* What one process had of one device, dead ones until their place is taken again. */
struct sim_client_books {
    uint32_t pid; /* as the process sees itself */
    uint32_t alive;
    uint32_t mps;        /* 1: a client of the MPS server */
    uint32_t percentage; /* of the device it may use at once */
    uint64_t memory_bytes;
    uint64_t busy_ns;        /* device time it really had */
    uint64_t window_busy_ns; /* of it, in the last whole utilisation window */
    uint64_t launches;       /* kernels completed */
};

struct sim_device_books {
    uint64_t memory_used_bytes;
    uint64_t busy_ns; /* time during which anything ran */
    uint64_t window_busy_ns;
    uint64_t window_ns;
    uint64_t clock_ns;     /* CLOCK_MONOTONIC up to which this is true */
    uint32_t compute_mode; /* NVML's number */
    uint32_t client_count;
    struct sim_client_books clients[256];
};

struct sim_machine;

int sim_machine_create(const char *directory, const char *identifier,
                       const struct sim_device_identity *devices, uint32_t count);
int sim_machine_open(const char *directory, struct sim_machine **machine);
void sim_machine_close(struct sim_machine *machine);
uint32_t sim_machine_device_count(const struct sim_machine *machine);
const char *sim_machine_identifier(const struct sim_machine *machine);
int sim_machine_identity(const struct sim_machine *machine, uint32_t index,
                         struct sim_device_identity *identity);
int sim_machine_books(struct sim_machine *machine, uint32_t index, struct sim_device_books *books);
int sim_machine_set_compute_mode(struct sim_machine *machine, uint32_t index, uint32_t mode);

#endif
