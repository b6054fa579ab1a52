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

#define SIM_MAX_GPUS 16
#define SIM_MIG_SLOTS 7     /* a GPU has so many MIG instances at most */
#define SIM_MAX_DEVICES 128 /* each GPU, and room for its instances */
#define SIM_PROCESS_SLOTS 256

/* So many calls can have a cost; calls.def names those that do. */
#define SIM_CALLS 64

/* Kinds of figures that vary (spread.h), as `spread_percent` is indexed. */
#define SIM_SPREAD_LATENCY 0    /* of work, and of events */
#define SIM_SPREAD_SUBMISSION 1 /* how much of a call has passed by then */
#define SIM_SPREAD_SWITCH 2     /* of processes */
#define SIM_SPREAD_CALL 3       /* what calls take of the host */
#define SIM_SPREAD_KERNEL 4     /* what kernels, fills and copies take of the GPU */
#define SIM_SPREADS 5

/* How a GPU and its driver behave in time and memory, as measured on a real one; the files of
 * sim/calibrations have the sources. Times in ns of the GPU unless said otherwise. */
struct sim_calibration {
    char name[32];
    uint32_t slice_ns;       /* a process's turn while another has work */
    uint32_t switch_ns;      /* what taking the GPU from a process between two kernels costs */
    uint32_t preempt_ns;     /* and more where kernels of it fill the GPU, in proportion to that */
    uint32_t idle_switch_ns; /* changing to a process from one that has no work left */
    uint32_t latency_ns;     /* from a call's submission until an idle GPU begins its work */
    uint32_t submit_percent; /* of what a call takes the host have passed by its submission */
    uint32_t event_latency_ns;     /* and that of an event, which no code is fetched for */
    uint32_t cold_after_ns;        /* the first call of a thread after so long elsewhere is cold */
    uint32_t event_ns;             /* what recording an event takes in its stream */
    uint32_t dependent_overlap_ns; /* of a dependent launch, next to the end of the kernel before */
    uint32_t concurrent; /* 1: kernels of several streams run side by side as their blocks fit;
                             * 0: each has the whole GPU */
    uint32_t
        managed_as_touched; /* 1: managed memory is taken where it is first touched; 0: whole */
    uint64_t block_bytes;   /* what the GPU gives memory in */
    uint64_t small_bytes;   /* pieces of up to this share blocks; 0: nothing does */
    uint32_t block_ns; /* of the host: what a block more or less adds to cuMemAlloc, cuMemFree */
    uint32_t further_block_ns;    /* and each that comes or goes with it */
    uint64_t pool_granule_bytes;  /* by which pools grow */
    uint64_t green_context_bytes; /* what a green context takes; UINT64_MAX: as a context */
    uint64_t streams_bytes;       /* what each `streams_per_step` streams take, kept afterwards */
    uint32_t streams_per_step;
    uint32_t local_memory;       /* 1: the first launch that needs it takes local memory */
    uint32_t local_step_bytes;   /* to which what each thread needs is rounded up */
    uint64_t local_slack_bytes;  /* growths of up to so much in all take nothing */
    uint64_t heap_bytes;         /* taken by the first kernel that allocates, beyond its limit */
    uint32_t call_ns[SIM_CALLS]; /* of the host, by enum sim_call: each call takes at least this */
    uint32_t cold_call_ns[SIM_CALLS]; /* and so much longer where it is cold */
    uint32_t spread_seed;             /* decides all that varies; 0: nothing does, nor the clock */
    uint32_t spread_percent[SIM_SPREADS];     /* either way, each time */
    uint32_t run_spread_percent[SIM_SPREADS]; /* either way, the same at all times of a seed */
    uint32_t clock_ramp_after_ns;             /* a GPU that ran nothing for so long is slower … */
    uint32_t clock_ramp_ns;                   /* … for so long */
    uint32_t clock_ramp_percent;              /* its speed meanwhile */
};

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
    struct sim_calibration calibration;
};

#define SIM_MIG_PROFILES 8
#define SIM_MIG_SLICES 8 /* of memory, that GPU instances are placed on */

/* A kind of GPU instance that a model can be cut into (sim/models, with sources). */
struct sim_mig_profile {
    char name[16]; /* "1g.5gb+me" */
    uint32_t memory_mib;
    uint32_t sm_count;
    uint32_t number; /* NVML_GPU_INSTANCE_PROFILE_* */
    uint32_t id;     /* as `nvidia-smi mig -lgip` numbers it */
    uint32_t slices; /* of compute */
    uint32_t size;   /* slices of memory */
    uint32_t starts; /* a bit for each slice of memory that it may begin at */
    uint32_t instances;
    uint32_t copy_engines;
    uint32_t decoders;
    uint32_t encoders;
    uint32_t jpeg_engines;
    uint32_t optical_flow_engines;
};

/* Returns the name of the call that `call_ns` has at an index, NULL where there is none. */
const char *sim_call_name(uint32_t call);

/* One GPU of a machine, or room for one MIG instance: those come behind all GPUs. */
struct sim_device_identity {
    struct sim_profile profile;
    char uuid[64]; /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "MIG-..." of an instance */
    char serial[32];
    uint32_t pci_bus;
    int32_t numa_node;
    uint32_t gpu;               /* of an instance: the index of its GPU, plus one; 0: a whole GPU */
    uint32_t instance;          /* of an instance: the id of its GPU instance */
    uint32_t mig_profile_count; /* of a GPU: 0 where it has no MIG */
    uint32_t reserved;
    struct sim_mig_profile mig_profiles[SIM_MIG_PROFILES];
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
    uint32_t uid;
    uint32_t failed;        /* 1: its MPS server ended under it */
    uint64_t pid_namespace; /* in which it sees itself so: an inode, 0 where nobody knows */
};

struct sim_device_books {
    uint64_t memory_used_bytes;
    uint64_t memory_peak_bytes;
    uint64_t backed_bytes; /* of host memory, behind what was written on this device */
    uint64_t busy_ns;      /* time during which anything ran */
    uint64_t window_busy_ns;
    uint64_t window_ns;
    uint64_t window_end_ns; /* CLOCK_MONOTONIC at the end of the last whole window */
    uint64_t clock_ns;      /* CLOCK_MONOTONIC up to which this is true */
    uint32_t compute_mode;  /* NVML's number */
    uint32_t client_count;
    struct sim_client_books clients[256];
};

#define SIM_NVML_FAULTS 4
#define SIM_NVML_HANGS -1

/* What NVML answers on request, on one device, instead of what is so. */
struct sim_nvml_fault {
    char function[60]; /* what their names begin with; "*": every one; empty: there is no fault */
    int32_t answer;    /* nvmlReturn_t; SIM_NVML_HANGS: a call does not return while this is so */
};

/* What goes wrong on request, on one device. Zero is health. */
struct sim_device_faults {
    uint32_t lost;                /* the GPU has fallen off the bus */
    uint32_t broken_code;         /* CUresult that contexts begun until broken_ns answer, 0: none */
    uint64_t broken_ns;           /* CLOCK_MONOTONIC */
    uint64_t failing_allocations; /* so many of the next ones find no memory */
    struct sim_nvml_fault nvml[SIM_NVML_FAULTS];
};

/* What goes wrong on request, in every driver call of every process. */
struct sim_call_faults {
    uint64_t delay_ns;   /* each takes this much longer */
    uint32_t code;       /* CUresult that calls answer instead of working */
    uint32_t code_count; /* so many of the next ones; 0: none */
};

#define SIM_EVENT_XID 1        /* data: the XID */
#define SIM_EVENT_ECC_SINGLE 2 /* a corrected memory error */
#define SIM_EVENT_ECC_DOUBLE 3 /* one that was not */

/* Something that NVML tells those who registered for it. */
struct sim_event {
    uint64_t number; /* counts from 1 on each device */
    uint64_t data;
    uint32_t type;
    uint32_t reserved;
};

struct sim_machine;

/* The driver as NVML shows it; libvgpu/driver_releases.py has the table and says what is meant. */
struct sim_driver_release {
    char version[24]; /* "580.65.06" */
    uint32_t process_entry_bytes;
    uint32_t lists_unseen;
};

/* `driver_version`: that of the driver API, as cuDriverGetVersion gives it. `backing_bytes`: how
 * much host memory may stand behind the device bytes that were written, on all GPUs together. */
struct sim_machine_options {
    uint32_t driver_version;
    uint32_t reserved;
    uint64_t backing_bytes;
    struct sim_driver_release release;
};

/* `gpus`: its GPUs. Each that has MIG gets room for instances behind them, in the same order. */
int sim_machine_create(const char *directory, const char *identifier,
                       const struct sim_machine_options *options,
                       const struct sim_device_identity *gpus, uint32_t count);
uint32_t sim_machine_driver_version(const struct sim_machine *machine);
const struct sim_driver_release *sim_machine_release(const struct sim_machine *machine);
uint64_t sim_machine_backing_bytes(const struct sim_machine *machine);
/* Becomes one of the machine's processes; -EUSERS: there are SIM_PROCESS_SLOTS. */
int sim_machine_open(const char *directory, struct sim_machine **machine);
/* Only looks: takes no slot, and must change nothing. */
int sim_machine_watch(const char *directory, struct sim_machine **machine);
void sim_machine_close(struct sim_machine *machine);
/* Reads the driver version of the machine in a directory without becoming one of its processes. */
int sim_machine_peek_version(const char *directory, uint32_t *driver_version);
/* GPUs, and room for instances whether there is one or not (sim_mig_is_there). */
uint32_t sim_machine_device_count(const struct sim_machine *machine);
uint32_t sim_machine_gpu_count(const struct sim_machine *machine);
const char *sim_machine_identifier(const struct sim_machine *machine);
int sim_machine_identity(const struct sim_machine *machine, uint32_t index,
                         struct sim_device_identity *identity);
int sim_machine_books(struct sim_machine *machine, uint32_t index, struct sim_device_books *books);
int sim_machine_set_compute_mode(struct sim_machine *machine, uint32_t index, uint32_t mode);

/* mig_place.c. Returns the slice of memory at which the driver places one more instance of a profile,
 * or -ENOSPC. `occupied`: a bit for each slice that is taken; `existing`: so many there are of it. */
int sim_mig_place(const struct sim_mig_profile *profiles, uint32_t count, uint32_t occupied,
                  uint32_t existing, uint32_t wanted);

/* One GPU instance. */
struct sim_mig_instance {
    uint32_t slot;    /* of the GPU's room for instances */
    uint32_t device;  /* the index of that room on the machine */
    uint32_t profile; /* the index in the GPU's `mig_profiles` */
    uint32_t start;
    uint32_t id;          /* as the driver numbers it, by its place */
    uint32_t has_compute; /* 1: it has its compute instance, and can be used */
};

/* mig.c. `gpu` is an index among the GPUs. */
int sim_mig_mode(const struct sim_machine *machine, uint32_t gpu); /* 1: on; -ENOTSUP: has none */
int sim_mig_pending_mode(const struct sim_machine *machine, uint32_t gpu);
/* Fills in the GPU instances in the order of their ids, and returns how many there are. */
uint32_t sim_mig_instances(const struct sim_machine *machine, uint32_t gpu,
                           struct sim_mig_instance instances[SIM_MIG_SLOTS]);
/* How many more of a profile could be made. */
uint32_t sim_mig_capacity(const struct sim_machine *machine, uint32_t gpu, uint32_t profile);
/* False for room in which no usable instance is. */
int sim_mig_is_there(const struct sim_machine *machine, uint32_t device);

/* mig_change.c: by a process of the machine. All answer -ENOTSUP where the GPU is not in MIG mode
 * (or has none) and -EBUSY where a process or what is inside is in the way. */
int sim_mig_set_mode(struct sim_machine *machine, uint32_t gpu, uint32_t on);
/* `start`: where, or -1 for where the driver likes. Returns the slot; -ENOSPC: no room. */
int sim_mig_create(struct sim_machine *machine, uint32_t gpu, uint32_t profile, int32_t start);
int sim_mig_destroy(struct sim_machine *machine, uint32_t gpu, uint32_t slot);
/* -EEXIST: it has one. */
int sim_mig_create_compute(struct sim_machine *machine, uint32_t gpu, uint32_t slot);
int sim_mig_destroy_compute(struct sim_machine *machine, uint32_t gpu, uint32_t slot);

/* faults.c. Whoever injects reads, changes and writes; two injectors at once are not kept apart. */
int sim_machine_read_device_faults(const struct sim_machine *machine, uint32_t index,
                                   struct sim_device_faults *faults);
int sim_machine_write_device_faults(struct sim_machine *machine, uint32_t index,
                                    const struct sim_device_faults *faults);
void sim_machine_read_call_faults(const struct sim_machine *machine,
                                  struct sim_call_faults *faults);
void sim_machine_write_call_faults(struct sim_machine *machine,
                                   const struct sim_call_faults *faults);

/* events.c. The last 64 of each device are kept. */
int sim_machine_raise_event(struct sim_machine *machine, uint32_t index, uint32_t type,
                            uint64_t data);
uint64_t sim_machine_last_event(const struct sim_machine *machine, uint32_t index);
/* Reads event `number`; -ENOENT: not yet, or too long ago. */
int sim_machine_read_event(const struct sim_machine *machine, uint32_t index, uint64_t number,
                           struct sim_event *event);
/* Sleeps until any event is raised on any device after the machine-wide count was `seen`, or the
 * time is over; returns the count. */
uint32_t sim_machine_wait_event(const struct sim_machine *machine, uint32_t seen,
                                uint64_t timeout_ns);
/* ECC errors counted on a device since the machine was made: corrected, uncorrected. */
void sim_machine_ecc_errors(const struct sim_machine *machine, uint32_t index, uint64_t *corrected,
                            uint64_t *uncorrected);

#endif
