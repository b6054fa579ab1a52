/*
 * One process's view of a simulated machine: its mapping, its slot, and for each device the
 * transaction on the device's state and the process's queue.
 *
 * Threads of the process are kept apart by the mutex of each device, which is private to the
 * process; nothing between processes is locked (layout.h). After a fork the child owns nothing:
 * it must forget the machine (sim_machine_forget) and open it again.
 */
#ifndef VGPU_SIM_MACHINE_H
#define VGPU_SIM_MACHINE_H

#include <pthread.h>
#include <stdbool.h>

#include "calls.h"
#include "layout.h"
#include "slice/life.h"

/* Exports a function of this file under one more name. The driver's calls have an address each, by
 * which programs tell them apart. */
#define SAME_AS(name, function) __typeof__(function) name __attribute__((alias(#function)))

/* Leaves the function with an error where something holds. */
#define REFUSE_IF(condition, error) \
    do { \
        if (condition) \
            return error; \
    } while (0)

/* Called under the device's mutex when an operation submitted with a note is found done. Those of
 * different lanes are found in any order, whichever was done first. */
typedef void (*sim_done_function)(void *note, uint64_t place, uint64_t at_ns);

struct sim_device {
    struct sim_machine *machine;
    struct sim_device_header *header;
    uint32_t index;
    pthread_mutex_t mutex;
    bool allocated; /* the disk holds this process's buffers */
    bool attached;
    bool failed;         /* as last seen: the MPS server ended under this process */
    uint32_t generation; /* of the MIG instance that was there when the machine was opened */
    uint32_t lanes_open;
    uint64_t done[SIM_LANES]; /* as last seen here; notes up to it were called */
    uint64_t settled_ns;      /* clock_ns of the state last seen */
    uint32_t releases;        /* gates let go; sleepers wait on it as a futex */
    sim_done_function on_done;
    void **notes;              /* SIM_LANES times SIM_QUEUE_DEPTH */
    struct sim_state *scratch; /* for predictions and readers */
    struct sim_workers *workers;
};

struct sim_machine {
    struct sim_machine_header *header;
    char *path; /* of the file */
    int file;   /* asks about others' locks; the program may have closed it, see machine_file */
    uint64_t file_device, file_inode;
    void *life_page; /* keeps this process's own lock (slice/life.h) */
    struct lifeline lifeline;
    uint32_t slot; /* SIM_NOBODY: only looks */
    struct sim_device devices[SIM_MAX_DEVICES];
};

/* A change to a device's state, made under the mutex in a copy that may be thrown away: no side
 * effects besides `state` and `argument`. Returns 0, or an error that leaves the device alone. */
typedef int (*sim_change)(struct sim_device *device, struct sim_state *state, void *argument);

uint64_t sim_now_ns(void);

/* There where a test has taken over the time (tests/native/virtual_time): a sleeper wakes to the moment,
 * and nothing needs to be spun. */
extern const char sim_sleeps_are_exact __attribute__((weak, visibility("default")));
#define SIM_SPUN_NS(usual) (&sim_sleeps_are_exact ? 0 : (usual))
struct sim_device *sim_machine_device(struct sim_machine *machine, uint32_t index);
void sim_machine_forget(struct sim_machine *machine);
/* Returns a descriptor that is the machine's file for certain, or -1: the program may have closed
 * ours and opened something else under its number. */
int sim_machine_file(struct sim_machine *machine);
/* Makes sure that the disk has room for a part of the mapped file; -ENOSPC where it has not, which
 * would otherwise be a SIGBUS of the program. */
int sim_machine_allocate(struct sim_machine *machine, const void *part, size_t bytes);

/* Whether the MPS server ended under this process; written under the device's mutex. */
static inline bool sim_device_failed(const struct sim_device *device)
{
    return __atomic_load_n(&device->failed, __ATOMIC_RELAXED);
}

/* device.c: state */
int sim_device_transact_locked(struct sim_device *device, sim_change change, void *argument,
                               bool reap);
int sim_device_transact(struct sim_device *device, sim_change change, void *argument, bool reap);
/* Calls `reader` with the state as it is now, in a private copy: changes nothing for others. */
int sim_device_read(struct sim_device *device, sim_change reader, void *argument);
/* Whether an MPS server holds the device now. */
bool sim_device_is_served(struct sim_device *device);
int sim_device_detach_slot(struct sim_device *device); /* clears what an earlier owner left */

/* kernel_lock.c */
/* Takes as long as the calibration says of an NVML call, behind those under way on the same GPU. */
void sim_device_nvml_call(struct sim_device *device, enum sim_call call);
/* Waits for the NVML calls under way, as what grows a context does. */
void sim_device_await_nvml(struct sim_device *device);

/* client.c: this process as a client of a device */
struct sim_client_options {
    uint32_t percentage;   /* 0: not an MPS client */
    uint32_t client_limit; /* the most MPS clients that the server takes; 0: any number */
    bool served; /* an MPS server holds the device: a process on it, also without clients */
};
/* 0, or -EUSERS: the MPS server has all the clients that it takes, -EBUSY: another process has the
 * device for itself, -EACCES: the device takes no process (compute modes), -ENOSPC: the disk is
 * full, -ENODEV: the GPU is in MIG mode, or the MIG instance is gone. Makes lane 0 ready. */
int sim_client_attach(struct sim_device *device, const struct sim_client_options *options);
/* Is no client any more, unless it has memory or work. */
void sim_client_detach_idle(struct sim_device *device);
/* The MPS server of this process has ended: what was queued is lost, and nothing more is taken. */
void sim_client_fail(struct sim_device *device);
/* Takes `bytes` of device memory, or -ENOMEM. `cap_bytes` limits what this process has; 0: no. */
int sim_client_reserve(struct sim_device *device, uint64_t bytes, uint64_t cap_bytes);
int sim_client_release(struct sim_device *device, uint64_t bytes);
int sim_client_memory(struct sim_device *device, uint64_t *used_bytes, uint64_t *own_bytes);
/* Counts host memory that stands behind device bytes; -ENOSPC beyond the machine's cap. */
int sim_client_back(struct sim_device *device, uint64_t bytes);
int sim_client_unback(struct sim_device *device, uint64_t bytes);

/* shared.c: device memory that several processes hold. It counts once, as its owner's; when the
 * owner lets go or dies, the next holder owns it, and with the last one it is free. */
/* Makes `bytes` of this process's memory shareable under a new identifier. -ENOSPC: too many. */
int sim_shared_export(struct sim_device *device, uint64_t bytes, uint64_t *identifier);
/* Becomes a holder; -ENOENT: nobody holds it any more. Holding twice counts once. */
int sim_shared_hold(struct sim_device *device, uint64_t identifier, uint64_t *bytes);
/* Lets go. Whoever exported it does this instead of sim_client_release. */
int sim_shared_drop(struct sim_device *device, uint64_t identifier);

/* faults.c: whether anything at all was asked to go wrong; one load, for every driver call */
static inline bool sim_machine_faulty(const struct sim_machine *machine)
{
    return __builtin_expect(__atomic_load_n(&machine->header->faulty, __ATOMIC_RELAXED) != 0, 0);
}
/* Takes one of a countdown of things that go wrong; false when none is left. */
bool sim_fault_take(uint64_t *remaining);
bool sim_fault_take_code(struct sim_machine *machine, uint32_t *code);

/* queue.c: its work. Operations are named by their place (layout.h). */
struct sim_submission {
    uint64_t cost_ns;
    uint32_t kind;
    uint32_t kernels;
    void *note;            /* for on_done, or NULL */
    uint64_t *place;       /* set under the device's mutex, so before on_done is called; or NULL */
    uint64_t after;        /* place of an operation that must be done first, or 0 */
    int32_t priority;      /* of the stream: the lowest number first */
    uint32_t parts;        /* of SIM_PARTS that its blocks fill of the device; 0: all of it */
    uint32_t dram_percent; /* of memory bandwidth that a KERNEL needs; MEMORY needs all of it */
    uint64_t behind;       /* a kernel that it need not wait for with the first … */
    uint64_t overlap_ns;   /* … so much of it, if it comes next to that in the lane */
};
/* Makes a lane ready for use; -ENOSPC: the disk is full. */
int sim_queue_open(struct sim_device *device, uint32_t lane);
/* Appends one operation, waiting while the lane is full; returns its place, or 0 where the MPS
 * server has ended under this process. */
uint64_t sim_queue_submit(struct sim_device *device, uint32_t lane,
                          const struct sim_submission *submission);
/* What this thread appends from now on goes to the device at that time, or at once if that has
 * passed. */
void sim_queue_not_before(uint64_t at_ns);
/* Lets a GATE or SPIN go. */
void sim_queue_release(struct sim_device *device, uint64_t place);
/* Whether the operation is done by now. */
bool sim_queue_query(struct sim_device *device, uint64_t place);
/* The same as far as is known without looking at the timeline. */
static inline bool sim_queue_known_done(const struct sim_device *device, uint64_t place)
{
    return __atomic_load_n(&device->done[sim_place_lane(place)], __ATOMIC_ACQUIRE) >
           sim_place_sequence(place);
}
/* Returns once the operation is done, sleeping most of the time. */
void sim_queue_wait(struct sim_device *device, uint64_t place);
/* When this thread last had to wait for an operation's end, and it was there; 0: never. */
uint64_t sim_queue_waited_until(void);
void sim_queue_has_waited(void);

/* An operation of any process on the device. One of a process that is gone counts as done. */
struct sim_origin {
    uint32_t slot;
    uint64_t place;
};
struct sim_origin sim_origin_here(const struct sim_device *device, uint64_t place);
bool sim_origin_query(struct sim_device *device, const struct sim_origin *origin);
void sim_origin_wait(struct sim_device *device, const struct sim_origin *origin);

#endif
