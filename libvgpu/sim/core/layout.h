/*
 * The machine file: what the processes of one simulated machine share. Only code of one build
 * shares a file (layout_version guards it), so this is no contract between releases.
 *
 *   header | device 0 | device 1 | ...
 *   device = its identity and `active` | state buffers, two a process slot | queues, eight a slot
 *
 * Nothing here is ever locked, so a process that is killed or stopped at any instruction holds up
 * nobody:
 * - A device's whole state (timeline, memory, clients) is an immutable snapshot. `active` names the
 *   buffer that holds the current one, with a version. A change is made in a copy, in one of the
 *   changer's own two buffers (the one that is not active), and published by a compare-and-swap of
 *   `active`; whoever loses starts again from the winner's. A reader copies and looks whether the
 *   version is still the same. Only its owner writes a buffer, and never while it is active.
 * - A process has SIM_LANES queues on a device, as a real one has CUDA_DEVICE_MAX_CONNECTIONS of
 *   them; each is in order by itself, and an operation may wait for one of another lane. A queue is
 *   written by its process alone (operations, then `tail`) and read by everyone. How far it is done
 *   stands in the snapshot.
 * - A process slot belongs to whoever holds the OFD lock on its byte behind the end of the file;
 *   the kernel lets go of it when the process dies.
 */
#ifndef VGPU_SIM_LAYOUT_H
#define VGPU_SIM_LAYOUT_H

#include "machine_api.h"

#define SIM_MAGIC 0x31454e494843414dull /* "MACHINE1" as bytes */
#define SIM_LAYOUT_VERSION 11
#define SIM_LANES 8
#define SIM_QUEUE_DEPTH 1024
#define SIM_LIFE_BASE 0x10000000000ll
/* A byte a GPU, locked by whoever changes its MIG instances (mig_change.c). */
#define SIM_MIG_BASE 0x30000000000ll
/* A byte a device, locked by the MPS server that serves it (sim/mps/served_gpus.py). */
#define SIM_MPS_BASE 0x20000000000ll
#define SIM_PAGE 4096
#define SIM_FILE_NAME "machine"
#define SIM_GPU_NAME "nvidiactl" /* the same file, as what processes on the GPU have open */

/* Over this long NVML averages utilisation. */
#define SIM_WINDOW_NS 166666667ull
/* Dead processes are looked for this often at most, except when memory is short. */
#define SIM_REAP_NS 10000000ull

#define SIM_OPERATION_KERNEL 0   /* needs the device */
#define SIM_OPERATION_MEMORY 1   /* memset, copy on the device: needs it too */
#define SIM_OPERATION_TRANSFER 2 /* over PCIe: takes time in its queue only */
#define SIM_OPERATION_EVENT 3    /* takes the GPU's turn for its time, but no part of it */
#define SIM_OPERATION_GATE 4     /* until its process lets it go */
#define SIM_OPERATION_SPIN \
    5 /* a KERNEL that spins until its process lets it go, then takes its time */

#define SIM_STAMP_TAG_SHIFT 56

/* Where an operation stands: its lane in the top byte, then its number in the lane, plus one. 0 is
 * no operation. Of two in one lane the later one is the greater number. */
#define SIM_PLACE_SHIFT 56

struct sim_operation {
    uint64_t submitted_ns;
    uint64_t cost_ns;     /* of the whole device's time */
    uint64_t stamp;       /* round of the queue in the top byte, then when it was done, 0 before */
    uint64_t released_ns; /* of a GATE or SPIN: when its process let it go, 0 before */
    uint64_t after;       /* place of one of the same process that must be done first, or 0 */
    uint32_t kind;
    uint32_t kernels;      /* how many launches this stands for in the books */
    int32_t priority;      /* of the stream: the lowest number first */
    uint16_t parts;        /* of SIM_PARTS that its blocks fill of the device; 0: all of it */
    uint16_t dram_percent; /* of the device's memory bandwidth that it needs at full speed */
    uint32_t overlap_ns;   /* of `cost_ns` that may pass while the kernel before it ends */
    uint32_t latency_ns;   /* from `submitted_ns` until an idle GPU begins it */
};

#define SIM_PARTS 6400 /* divides by 100 and by 64 */

struct sim_queue {
    uint64_t tail; /* operations ever submitted; the next goes to tail % SIM_QUEUE_DEPTH */
    uint64_t reserved[7];
    struct sim_operation operations[SIM_QUEUE_DEPTH];
};

#define SIM_CLIENT_ATTACHED 1u
#define SIM_CLIENT_MPS 4u
#define SIM_CLIENT_USED 8u    /* its books are worth showing */
#define SIM_CLIENT_FAILED 16u /* its MPS server ended under it */

struct sim_lane {
    uint64_t head;         /* operations done */
    uint64_t remaining_ns; /* of the operation at `head`, in time of the whole device */
};

struct sim_client {
    uint64_t busy_ns;
    uint64_t window_busy_ns; /* in the window that runs */
    uint64_t last_window_busy_ns;
    uint64_t launches;
    uint64_t memory_bytes;
    uint64_t backed_bytes;
    uint32_t flags;
    uint32_t pid;
    uint32_t percentage;
    uint32_t uid;
    uint32_t started;       /* a bit a lane: remaining_ns is that of the operation at `head` */
    uint32_t lanes_open;    /* a bit a lane: its queue was ever used in this slot */
    uint64_t pid_namespace; /* that `pid` is of: the inode of its ns/pid, 0 where nobody knows */
    uint64_t reserved[6];
    struct sim_lane lanes[SIM_LANES];
};

/* Device memory that several processes hold (shared.c). */
#define SIM_SHARED_SLOTS 128
struct sim_shared {
    uint64_t identifier; /* 0: free */
    uint64_t bytes;
    uint32_t owner; /* the slot whose memory_bytes count it */
    uint32_t reserved;
    uint64_t holders[SIM_PROCESS_SLOTS / 64];
    uint64_t reserved1;
};

#define SIM_NOBODY 0xffffffffu
#define SIM_MPS_GROUP 0xfffffffeu

struct sim_state {
    uint64_t clock_ns; /* up to here the timeline is settled */
    uint64_t busy_ns;
    uint64_t used_bytes; /* the sum over clients */
    uint64_t slice_started_ns;
    uint64_t switch_left_ns;
    uint64_t window_started_ns;
    uint64_t window_busy_ns;
    uint64_t last_window_busy_ns;
    uint64_t reaped_ns;
    uint32_t current;      /* slot, SIM_MPS_GROUP or SIM_NOBODY */
    uint32_t client_limit; /* slots at and above were never used */
    uint32_t compute_mode;
    uint32_t shared_limit; /* entries of `shared` at and above were never used */
    uint64_t backed_bytes;
    uint64_t next_shared;
    uint64_t peak_bytes; /* the most that used_bytes ever was */
    uint32_t closed;     /* takes no process: a GPU in MIG mode, or room without an instance */
    uint32_t generation; /* of the instance in this room, counted up with each */
    uint64_t switches;   /* changes of process so far */
    uint64_t ran_ns;     /* the device last ran something */
    uint64_t ramp_until_ns;
    uint64_t reserved[13];
    struct sim_client clients[SIM_PROCESS_SLOTS];
    struct sim_shared shared[SIM_SHARED_SLOTS];
};

#define SIM_EVENTS_KEPT 64

/* Beside the state, since none of it changes what the timeline does. */
struct sim_device_header {
    struct sim_device_identity identity;
    uint8_t reserved0[2048 - sizeof(struct sim_device_identity)];
    uint64_t active;        /* version << 16 | buffer */
    uint64_t mig;           /* of a GPU: its MIG mode and GPU instances (mig.h) */
    uint64_t nvml_until_ns; /* of a GPU: until then NVML calls hold its lock (kernel_lock.c) */
    uint64_t reserved1[5];
    struct sim_device_faults faults;
    uint64_t ecc_corrected;
    uint64_t ecc_uncorrected;
    uint64_t last_event; /* number of the newest */
    struct sim_event events[SIM_EVENTS_KEPT];
};

struct sim_machine_header {
    uint64_t magic; /* stored last */
    uint32_t layout_version;
    uint32_t device_count;
    uint64_t file_bytes;
    char identifier[64]; /* tells machines apart wherever they are mounted */
    uint32_t next_slot;
    uint32_t driver_version;
    uint64_t backing_bytes;
    uint32_t faulty;      /* any fault is on */
    uint32_t event_count; /* of all devices; waited for as a futex */
    uint32_t gpu_count;   /* the other devices are room for MIG instances */
    uint32_t reserved;
    struct sim_call_faults call_faults;
    struct sim_driver_release release;
};

#define SIM_ROUND(bytes) (((bytes) + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE)
#define SIM_STATE_STRIDE SIM_ROUND(sizeof(struct sim_state))
#define SIM_QUEUE_STRIDE SIM_ROUND(sizeof(struct sim_queue))
#define SIM_BUFFER_COUNT (2 * SIM_PROCESS_SLOTS)
#define SIM_DEVICE_BYTES \
    (SIM_PAGE + SIM_BUFFER_COUNT * SIM_STATE_STRIDE + \
     SIM_PROCESS_SLOTS * SIM_LANES * SIM_QUEUE_STRIDE)

_Static_assert(sizeof(struct sim_operation) == 64, "operations fill a cache line");
_Static_assert(sizeof(struct sim_client) == 256, "clients fill four cache lines");
_Static_assert(sizeof(struct sim_device_header) <= SIM_PAGE, "a device's header is one page");

static inline struct sim_device_header *sim_layout_device(void *base, uint32_t index)
{
    return (struct sim_device_header *)((char *)base + SIM_PAGE + index * SIM_DEVICE_BYTES);
}

static inline struct sim_state *sim_layout_state(struct sim_device_header *device, uint32_t buffer)
{
    return (struct sim_state *)((char *)device + SIM_PAGE + buffer * SIM_STATE_STRIDE);
}

static inline struct sim_queue *sim_layout_queue(struct sim_device_header *device, uint32_t slot,
                                                 uint32_t lane)
{
    return (struct sim_queue *)((char *)device + SIM_PAGE + SIM_BUFFER_COUNT * SIM_STATE_STRIDE +
                                (slot * SIM_LANES + lane) * SIM_QUEUE_STRIDE);
}

static inline uint64_t sim_place(uint32_t lane, uint64_t sequence)
{
    return (uint64_t)lane << SIM_PLACE_SHIFT | (sequence + 1);
}

static inline uint32_t sim_place_lane(uint64_t place)
{
    return (uint32_t)(place >> SIM_PLACE_SHIFT);
}

static inline uint64_t sim_place_sequence(uint64_t place)
{
    return (place & ((1ull << SIM_PLACE_SHIFT) - 1)) - 1;
}

#endif
