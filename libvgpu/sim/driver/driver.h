/*
 * The simulated libcuda.so.1, inside: one process's view of its devices, contexts, memory, modules,
 * streams and graphs, on top of sim/core. Only the cu* symbols of hooks.def are exported.
 *
 * Locks, in the order in which they may nest: driver.mutex (initialisation, contexts), that of
 * captures (capture.h), that of graph memory (graph_memory.h), vmm_mutex (vmm.h), that of blocks
 * (block.h), memory_bytes_lock (below), memory_mutex (allocation map, pools), the mutex of
 * shareable.c, then the core's mutex of a device, then that of handle.c. Notes of the core (event
 * completion) are called under the last but one and take none but the last. None of them is held
 * across a wait for work, which functions in streams could keep from ending.
 */
#ifndef VGPU_SIM_DRIVER_H
#define VGPU_SIM_DRIVER_H

#include <pthread.h>
#include <stdbool.h>

#pragma GCC visibility push(default)
#include "vgpu/cuda_api.h"
#include "vgpu/cuda_array.h"
#include "vgpu/cuda_calls.h"
#include "vgpu/cuda_graph.h"
#include "vgpu/cuda_vmm.h"
#pragma GCC visibility pop

#include "backing.h"
#include "handle.h"
#include "machine.h"

#define DRIVER_ALLOCATION_ROUND 512
#define DRIVER_MAX_BLOCK_THREADS 1024
#define DRIVER_STATIC_SHARED_BYTES 49152
#define DRIVER_WARP_THREADS 32
#define DRIVER_LINEAR_TEXTURE_ELEMENTS (1 << 28)

#define MAGIC_POOL 0x00006c6f6f707569ull
#define MAGIC_ARRAY 0x0079617272617569ull
#define MAGIC_MIPMAP 0x0070616d70696d75ull
#define MAGIC_NODE 0x0065646f6e706172ull
#define MAGIC_OBJECT 0x746365006a626f75ull

struct capture;

/* What the system keeps for itself of the shared memory of each block. */
static inline uint32_t driver_reserved_shared_bytes(const struct sim_profile *profile)
{
    return profile->compute_major >= 8 ? 1024 : 0;
}

/* Attributes of a stream besides its priority (stream_attributes.c); all zero is the default. */
struct stream_settings {
    CUaccessPolicyWindow access_policy;
    unsigned int synchronisation_policy;
    unsigned char sync_domain_map[2];
    bool has_sync_domain_map;
    unsigned int sync_domain;
};

enum context_buffer {
    CONTEXT_BUFFER_PRINTF,
    CONTEXT_BUFFER_HEAP,
    CONTEXT_BUFFER_STACKS,
    CONTEXT_BUFFER_STREAMS,
    CONTEXT_BUFFER_CODE,
    CONTEXT_BUFFER_COUNT
};

/* What was set of a context, and taken (context_info.c, context_old.c). A primary context begins again under
 * another id after a reset: what was kept under another one counts as nothing. */
struct context_settings {
    unsigned long long context_id;
    unsigned int attached;                       /* by cuCtxAttach */
    bool green;                                  /* part of a green context, which alone ends it */
    uint64_t buffer_bytes[CONTEXT_BUFFER_COUNT]; /* charged (context_memory.h) */
};

struct CUstream_st {
    uint64_t magic;
    struct CUctx_st *context;
    unsigned long long context_id;
    struct driver_device *device; /* also once the context is another one's memory */
    unsigned int flags;
    int priority;
    uint32_t lane;
    unsigned long long id;
    uint64_t last;         /* place of its last operation, 0: none yet */
    uint64_t seen_legacy;  /* the default stream's work that this one is known to come after */
    struct caller *caller; /* calls host functions; NULL before the first */
    struct capture *capture;
    struct stream_settings settings;
};

struct CUctx_st {
    uint64_t magic;
    struct driver_device *device;
    unsigned int flags;
    bool primary;
    bool alive;
    bool ending;           /* its work is waited for, or cut short, before the rest of it goes */
    unsigned int retained; /* of a primary context */
    int holder;            /* of a green context: the thread that it is current to, 0: none */
    unsigned long long id;
    uint64_t begun_ns;
    uint64_t own_bytes;           /* what it takes by itself */
    unsigned int stream_count;    /* that it has of its program */
    uint64_t last[SIM_LANES];     /* places of the last work of all its streams */
    uint64_t blocking[SIM_LANES]; /* of those that the default stream waits for */
    uint64_t joined[SIM_LANES];   /* of those, what the default stream comes after already */
    size_t limits[16];
    struct CUstream_st legacy;     /* the default stream */
    struct CUstream_st per_thread; /* stands for the default streams of all threads */
    struct context_settings settings;
    struct context_value *storage; /* what libraries keep with it (export_table.h) */
};

struct CUmemPoolHandle_st {
    uint64_t magic;
    struct driver_device *device;
    CUmemLocation location; /* on the host: nothing of it is charged */
    CUmemAllocationHandleType handle_types;
    uint64_t max_bytes;                /* 0: no limit */
    uint64_t identifier;               /* among processes, once exported; 0: never */
    bool imported;                     /* another process allocates */
    unsigned char peers[SIM_MAX_GPUS]; /* CUmemAccess_flags of the other devices */
    uint64_t used_bytes, used_high_bytes;
    uint64_t reserved_bytes, reserved_high_bytes; /* what is charged on the device */
    uint64_t threshold_bytes;                     /* kept over a synchronisation */
    int reuse[3];
    bool destroyed;
    struct CUmemPoolHandle_st *next; /* of the created and imported ones */
};

struct driver_device {
    struct sim_device *device;
    const struct sim_device_identity *identity;
    int ordinal;
    struct CUctx_st primary;
    struct CUmemPoolHandle_st pool; /* the default one */
    struct CUmemPoolHandle_st *current_pool;
    uint32_t lane_streams[SIM_LANES]; /* how many streams use each lane */
    uint32_t percentage;              /* as an MPS client; 0: none */
    uint64_t cap_bytes;               /* MPS pinned memory limit of this process; 0: none */
};

struct driver {
    pthread_mutex_t mutex;
    pthread_cond_t ended; /* a context has ended */
    bool ready;
    bool forked;      /* a child of a process that had called cuInit */
    CUresult failure; /* of the last cuInit */
    const struct sim_calibration
        *calibration; /* of the first device, for what calls take; NULL: not yet */
    struct sim_machine *machine;
    int device_count;
    struct driver_device devices[SIM_MAX_GPUS];
    unsigned long long next_id;
};

extern struct driver driver;

/* start.c */
CUresult driver_check(void);
int driver_version(void); /* of the machine, 13000 for CUDA 13.0; also before cuInit */

/* fault.c */
/* What a call must answer because of a fault on request; `context` may be NULL. Takes the time that
 * calls take on request. */
CUresult fault_answer(const struct CUctx_st *context);
/* What goes wrong on a device; on a MIG instance what does on its GPU. */
struct sim_device_faults *fault_of(const struct driver_device *device);
bool fault_fails_allocation(struct driver_device *device);
/* visible.c: which devices of the machine this process sees; fills driver.devices */
int visible_find_devices(void);
/* mps_client.c: whether the process is an MPS client of each device, and within which bounds; the
 * error of a daemon that does not take it */
CUresult mps_client_configure(void);
/* Tells the server, the first time, that a fault of the GPU has ended this client's contexts. */
void mps_client_tell_fault(void);
bool mps_client_lost(void); /* The most clients that a server takes on a device. */
uint32_t mps_client_limit(const struct driver_device *device);

/* context_stack.c */
bool context_is_one(const struct CUctx_st *context);
bool context_stack_is_full(void);
void context_stack_push(struct CUctx_st *context);
void context_stack_drop(const struct CUctx_st *context); /* if it is the top one */
CUresult context_current(struct CUctx_st **context);
/* That it can be worked in, in the life of it that had this id. A primary context's lives are one. */
CUresult context_check(const struct CUctx_st *context, unsigned long long id);
struct driver_device *device_of(CUdevice ordinal);
/* context.c: as what this process becomes a client of a device. */
struct sim_client_options device_client_options(struct driver_device *device);

/* context_info.c, context_memory.c */
CUresult context_given_or_current(CUcontext given, struct CUctx_st **context);
struct context_settings *context_settings_of(struct CUctx_st *context);
void context_limits_end(struct CUctx_st *context); /* gives back what its buffers took */

/* call.c: functions of the host in streams */
struct caller;
/* Lets the thread end once it has called everything that was given to it. */
void caller_close(struct caller *caller);

/* stream.c */
/* Turns a handle (NULL, the two special ones, a real one) into a stream of a live context. */
CUresult stream_resolve(CUstream handle, struct CUstream_st **stream);
void stream_initialise(struct CUstream_st *stream, struct CUctx_st *context, unsigned int flags);
/* Puts one operation onto a stream; returns its place. */
uint64_t stream_submit(struct CUstream_st *stream, const struct sim_submission *submission);
CUresult stream_wait(struct CUstream_st *stream);
bool stream_is_done(struct CUstream_st *stream);
/* Makes what comes next on a stream wait for an operation of the same device. */
void stream_wait_place(struct CUstream_st *stream, uint64_t place);
/* Has `function` called on a thread of the driver when the stream gets there; what is put onto the
 * stream afterwards waits for its end. It may block; it must not put work onto a stream. */
typedef void (*stream_function)(void *argument);
CUresult stream_call(struct CUstream_st *stream, stream_function function, void *argument);
/* The same with operations of the caller's: it is called behind the one, and lets go the other (a GATE or SPIN). */
CUresult stream_call_between(struct CUstream_st *stream, const struct sim_submission *before,
                             const struct sim_submission *held, stream_function function,
                             void *argument);
/* Whether any such function has not returned yet. While none is pending, all that was put onto
 * streams has had its effect on memory; otherwise what moves or frees bytes must take its turn. */
bool stream_calls_pending(void);
/* Whether this is the thread that calls such functions, where the driver permits no call of its own
 * (cuda.h on cuStreamAddCallback). */
bool stream_call_is_here(void);
/* Asked by such a function: whether its context ends, so that it waits for nothing any more. */
bool stream_call_is_cut_short(void);
/* Returns when none is. Not on a thread that calls such a function: CUDA_ERROR_NOT_PERMITTED. */
CUresult stream_calls_settle(void);
CUresult context_wait(struct CUctx_st *context);

struct CUevent_st {
    uint64_t magic;
    struct CUctx_st *context;
    unsigned long long context_id;
    struct driver_device *device; /* also once the context is another one's memory */
    unsigned int flags;
    uint64_t place;              /* of the last record, 0: never recorded; see event.c */
    uint64_t at_ns;              /* when that record was done */
    unsigned int pending;        /* records under way */
    bool destroyed;              /* buried when none is pending */
    struct shared_event *shared; /* other processes may record it too (event_ipc.h); NULL: none */
    struct capture *capture;     /* last recorded in it */
    unsigned long long capture_id;
};
void event_done(void *note, uint64_t place, uint64_t at_ns);
/* Records an event in a stream that is not captured. */
void event_put(struct CUevent_st *event, struct CUstream_st *stream, uint64_t cost_ns);
static inline bool is_event(const struct CUevent_st *event)
{
    return handle_is(MAGIC_EVENT, event);
}
/* The capture in which an event was last recorded; any thread may record it again. */
static inline struct capture *event_capture(const struct CUevent_st *event)
{
    return __atomic_load_n(&event->capture, __ATOMIC_RELAXED);
}
static inline void event_set_capture(struct CUevent_st *event, struct capture *capture)
{
    __atomic_store_n(&event->capture, capture, __ATOMIC_RELAXED);
}
/* The place of the last record, 0 before the first. */
static inline uint64_t event_place(const struct CUevent_st *event)
{
    return __atomic_load_n(&event->place, __ATOMIC_ACQUIRE);
}

#include "module.h"

/* launch.c */
struct launch {
    unsigned int grid[3], block[3];
    unsigned int shared_bytes;
    void **params, **extra;
    unsigned int cluster[3]; /* 0: none asked for */
    bool cooperative;
    bool dependent;      /* may begin while the kernel before it in its stream ends */
    CUevent trigger;     /* recorded when the launches that wait for it may begin; NULL: none … */
    bool triggers_first; /* … which is when its blocks begin */
};
/* Reads a configuration with its attributes; leaves the arguments alone. */
CUresult launch_read_config(const CUlaunchConfig *config, struct launch *launch);
/* What a launch asks of its device: time, and how much of it (of SIM_PARTS, 0: all). */
struct launch_need {
    uint64_t cost_ns;
    uint32_t parts;
    uint32_t dram_percent;
};
/* Of a dependent launch that takes so long, what passes while the kernel before it ends. */
uint64_t launch_overlap_ns(const struct driver_device *device, uint64_t cost_ns);
/* Reads an argument, an integer of 4 or 8 bytes. */
CUresult launch_read_argument(const struct CUfunc_st *function, const struct launch *launch,
                              uint32_t index, uint64_t *value);
/* meeting.c: the launch of a kernel that meets a peer */
CUresult meeting_launch(struct CUstream_st *stream, const struct CUfunc_st *function,
                        const struct launch *launch, uint32_t parts);
CUresult launch_describe(struct CUfunc_st *function, struct driver_device *device,
                         const struct launch *launch, struct launch_need *need);
/* occupancy.c */
CUresult cluster_check(const struct CUfunc_st *function, const struct driver_device *device,
                       const struct launch *launch);
uint64_t transfer_cost_ns(const struct sim_profile *profile, uint64_t bytes);
uint64_t device_copy_cost_ns(const struct sim_profile *profile, uint64_t bytes);

/* Leaves the function with what a call answered, unless that is success. */
#define CHECK(call) \
    do { \
        CUresult check_result_ = (call); \
        if (check_result_ != CUDA_SUCCESS) \
            return check_result_; \
    } while (0)
#define DRIVER_CHECK() CHECK(driver_check())
/* Declares the current context, or the stream of a handle, or leaves the function without one. */
#define CURRENT_CONTEXT(context) \
    struct CUctx_st *context; \
    CHECK(context_current(&context))
#define RESOLVE_STREAM(stream, handle) \
    struct CUstream_st *stream; \
    CHECK(stream_resolve(handle, &stream))
#define INVALID_IF(condition) REFUSE_IF(condition, CUDA_ERROR_INVALID_VALUE)

#include "call_cost.h"
#include "memory.h"
#include "work.h"

#endif
