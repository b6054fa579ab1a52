/*
 * The contract between the host and the processes of one container: two files, `limits` and
 * `usage`, read verbatim by the shim (C) and by the node agent (Python through cffi over this
 * same header), and a FIFO for each device.
 *
 * limits  written by the host only, mode 0444, mounted read-only. Its changing part exists in two
 *         copies. A writer (with an OFD lock on the file `lock` next to it) fills the copy that
 *         is not active, with generation and checksum, and stores `active_generation` last: a
 *         writer killed at any instruction leaves a whole copy. The active copy of generation g is
 *         copy g & 1. A device keeps its index for the life of the file, so one aligned 8-byte load
 *         of a field of the active copy is always a value that some writer meant.
 * usage   written by the container's processes, mode 0666, fully allocated on creation. The host
 *         treats all of it as hostile: it never maps it, it reads a copy and bounds every value.
 *
 * Both keep their inode for life (a bind mount follows the inode).
 *
 * Rules for a change: offsets marked "frozen" never move. A field may be carved out of `reserved`
 * (zero means "not there") without a new version; anything else raises VGPU_LAYOUT_VERSION, and the
 * previous version must stay readable. Fixed-width types only, little-endian.
 */
#ifndef VGPU_CONTRACT_H
#define VGPU_CONTRACT_H

#include <stdint.h>

/* 2: slots of `usage` for up to seven shared pieces. In files of version 1 each has one, and `pieces_device` is
 * a random number, so it names no device. */
#define VGPU_LAYOUT_VERSION 2
#define VGPU_OLDEST_LAYOUT_VERSION 1
#define VGPU_LIMITS_MAGIC 0x53494d494c554756 /* "VGULIMIS" as bytes */
#define VGPU_USAGE_MAGIC 0x4547415355554756  /* "VGUUSAGE" as bytes */
#define VGPU_UUID_BYTES 64
#define VGPU_ID_BYTES 64
#define VGPU_MAX_DEVICES 64
#define VGPU_SLOT_COUNT 512
#define VGPU_KIND_COUNT 8
#define VGPU_NOTED_ENTRIES 64 /* most names that a process counts */

/* Where the OFD byte locks of a slot lie in `usage`: far beyond its end, two bytes a slot. LIFE is
 * locked while its bytes are taken; CLAIM, too, while the process lives that took them. */
#define VGPU_LOCK_BASE 0x10000000000
#define VGPU_LOCK_CLAIM 0
#define VGPU_LOCK_LIFE 1

/* Behind them those of slots for pieces of memory: one of the slot, then one of each piece for all who
 * hold it, and one for who made it (slot_pieces.h). */
#define VGPU_LOCK_PIECES 0x10000000400
#define VGPU_PIECE_LOCKS 16 /* a slot */

/* How many pieces of memory one slot stands for. */
#define VGPU_SLOT_PIECES 7
#define VGPU_PIECE_KIND_AT 56

/* enum values as plain integers, since they are stored in files */
#define VGPU_FAMILY_VGPU 1
#define VGPU_FAMILY_MPS 2

#define VGPU_COMPUTE_OFF 0
#define VGPU_COMPUTE_STRICT 1
#define VGPU_COMPUTE_ELASTIC 2

/* What a charged byte was taken for; index into kind_bytes. */
#define VGPU_KIND_PLAIN 0   /* cuMemAlloc, cuMemAllocPitch */
#define VGPU_KIND_ASYNC 1   /* stream-ordered allocations */
#define VGPU_KIND_MANAGED 2 /* cuMemAllocManaged */
#define VGPU_KIND_CONTEXT 3 /* what a context costs before its first allocation */
#define VGPU_KIND_VMM 4     /* cuMemCreate */
#define VGPU_KIND_ARRAY 5   /* arrays and mipmaps */
#define VGPU_KIND_MODULE 6  /* module globals */
#define VGPU_KIND_OTHER 7

/* What block_bytes may be: a power of two between these. */
#define VGPU_LEAST_BLOCK_BYTES 512 /* every driver rounds up to it */
#define VGPU_MOST_BLOCK_BYTES 33554432

/* In context_measured_ns: others may have a part in what was measured. */
#define VGPU_CONTEXT_ROUGH 1

/* How many lengths of delay are told apart (delay.h). */
#define VGPU_DELAY_BUCKETS 16

/* What is to be known of a process's figures; bits of `books`. */
#define VGPU_BOOKS_ESTIMATED 1 /* gpu_time_ns and launches were sampled, not all measured */

/* ---- limits ---------------------------------------------------------------------------------- */

struct vgpu_limits_header {
    uint64_t magic;           /* frozen @0 */
    uint32_t layout_version;  /* frozen @8 */
    uint32_t header_bytes;    /* frozen @12 */
    uint64_t file_bytes;      /* frozen @16 */
    uint32_t device_capacity; /* most devices this file can ever name */
    uint32_t copy_bytes;      /* of one copy, devices included */
    uint32_t copy_offset[2];
    uint32_t grant_offset; /* one vgpu_grant per device */
    uint32_t grant_stride;
    uint8_t reserved0[80];
    uint64_t active_generation; /* frozen @128; never 0; stored last; shim compares it per launch */
    uint8_t reserved1[120];
};

struct vgpu_limits_copy {
    uint64_t checksum; /* vgpu_checksum of everything behind this field */
    uint64_t generation;
    uint32_t device_count;
    uint32_t family;        /* VGPU_FAMILY_* */
    char allocation_id[64]; /* NUL-terminated */
    uint8_t reserved[40];
};

struct vgpu_device_limit {
    char uuid[64];                  /* "GPU-…" or "MIG-…", NUL-terminated; empty: unused */
    uint64_t memory_limit_bytes;    /* 0: nothing may be allocated */
    uint64_t physical_bytes;        /* memory_limit_bytes / overcommit */
    uint64_t context_bytes;         /* estimate of what one context costs; 0: measure it */
    uint64_t unaccounted_bytes;     /* what the host measured beyond the ledger; charged, too */
    uint32_t core_percent;          /* 1..100; 100 and above: not capped; 0: left-overs only */
    uint32_t compute_mode;          /* VGPU_COMPUTE_* */
    uint32_t weight;                /* of this container on a contended GPU */
    uint32_t mps_thread_percentage; /* CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; 0: not set */
    uint64_t mps_pinned_bytes;      /* CUDA_MPS_PINNED_DEVICE_MEM_LIMIT; 0: not set */
    /* CUDA_MPS_PIPE_DIRECTORY in the container; empty: no client of MPS there. It stays for the
     * life of the file. Family vgpu has it alone, without the two above: its share is held in time. */
    char mps_pipe_directory[128];
    uint64_t block_bytes; /* what the GPU gives memory in; 0: ask the driver */
};

/* The arbiter's grant for one device: outside the copies, stored by the arbiter alone, who wakes
 * waiters by futex on the low half of `number`. A reader loads number, the rest, number again and
 * retries while they differ or number is odd; all zero: there never was an arbiter. */
struct vgpu_grant {
    uint64_t number;
    uint64_t start_ns; /* CLOCK_MONOTONIC; the tenant may launch from here … */
    uint64_t end_ns;   /* … as long as what it launches ends before here; 0: not its turn */
    uint64_t beat_ns;  /* CLOCK_MONOTONIC: when the arbiter was last there; old: it is gone */
    uint64_t mode;     /* VGPU_GRANT_* */
    uint64_t window;   /* counts this tenant's windows; stays when one is moved or extended */
    uint8_t reserved[16];
};

#define VGPU_GRANT_NONE 0    /* there is no arbiter: the tenant keeps to its own cap */
#define VGPU_GRANT_FREE 1    /* nobody else wants the device now */
#define VGPU_GRANT_WINDOWS 2 /* contended: only within the window */
#define VGPU_GRANT_SHARED 3  /* others use the device, too, and it is enough for all */

/* ---- usage ----------------------------------------------------------------------------------- */

struct vgpu_usage_header {
    uint64_t magic;          /* frozen @0 */
    uint32_t layout_version; /* frozen @8 */
    uint32_t header_bytes;   /* frozen @12 */
    uint64_t file_bytes;     /* frozen @16 */
    uint32_t device_capacity;
    uint32_t slot_count;
    uint32_t device_offset; /* vgpu_usage_device[device_capacity] */
    uint32_t device_stride;
    uint32_t slot_offset; /* vgpu_usage_slot[slot_count], each followed by its devices */
    uint32_t slot_stride;
    uint32_t slot_device_offset; /* of vgpu_usage_slot_device[0] within a slot */
    uint32_t slot_device_stride;
    char allocation_id[64];
    uint8_t reserved0[8];
    uint32_t hi_slot; /* frozen @128: slots at and above were never used */
    uint8_t reserved1[124];
};

/* Container-wide, per device. Two cache lines that different code writes, and spare ones. */
struct vgpu_usage_device {
    uint64_t total_low;  /* ledger.h: used | slot | low bits of the sequence number */
    uint64_t total_high; /* ledger.h: delta | high bits of the sequence number */
    uint8_t reserved0[48];
    int64_t virtual_time_ns;  /* throttle.h: the cap's virtual time, CLOCK_MONOTONIC */
    uint64_t busy_until_ns;   /* when the work in flight is predicted to end */
    uint64_t demand_ns;       /* CLOCK_MONOTONIC: when somebody last wanted to launch */
    uint64_t yielded_window;  /* the window that needs no more of its time (vgpu_grant.window) */
    uint64_t counted_percent; /* the cap that virtual_time_ns is counted in; 0: none yet */
    uint64_t launched_window; /* the last window something was launched in */
    uint64_t waits_until_ns;  /* launch_queue.h: nobody waits to launch after this */
    uint64_t served;          /* launch_queue.h: which slot was served last, and when */
    uint64_t sampling_ns;     /* utilisation.h, CLOCK_MONOTONIC: who samples next, and not before */
    uint64_t sample_count;    /* sample n is kept at n & 1 */
    uint64_t sampled_at_ns[2]; /* CLOCK_MONOTONIC */
    uint64_t charged_ns;       /* demand.h: GPU time charged so far, with all corrections */
    uint64_t
        stalled_ns; /* demand.h: time in which launches or calls waited for the GPU or a turn */
    uint64_t block_bytes; /* block.h: what the GPU gives memory in; 0: nobody has asked it yet */
    uint8_t reserved2[56];
    uint64_t context_bytes;       /* context_cost.h: what a context was measured to cost */
    uint64_t context_measured_ns; /* CLOCK_MONOTONIC, VGPU_CONTEXT_ROUGH; 0: not measured yet */
};

/* One per process, and one for several pieces of memory that it shares. gen: even = free and clean,
 * odd = in use or its last user died. */
struct vgpu_usage_slot {
    uint64_t gen;
    /* entry_notes.h: how many names the driver answered with what hooks.def does not know. */
    uint32_t unknown_entries;
    uint32_t moved_entries;
    char noted_entry[48];      /* the first of these names, NUL-terminated */
    uint32_t pid;              /* as the process sees itself */
    uint32_t pid_namespace;    /* where `pid` counts: the inode of /proc/self/ns/pid; 0: unknown */
    uint64_t start_time_ticks; /* field 22 of /proc/self/stat: tells a reused pid */
    uint64_t attached_ns;      /* CLOCK_REALTIME */
    char command[16];          /* comm, NUL-terminated */
    /* 0: a process. Else 1 + the device of pieces of memory that several processes may hold
     * (slot_pieces.h): the slot is in use as long as any of them lives; pid and command are of who made
     * the pieces. */
    uint64_t pieces_device;
    uint8_t reserved[8];
    /* What MPS holds this process to on its first device, since it called cuInit; 0: nothing. */
    uint32_t mps_thread_percentage;
    uint32_t mps_pinned_mib;
};

/* A piece of memory that several processes may hold. */
struct vgpu_usage_piece {
    uint64_t key;
    uint64_t bytes; /* below bit VGPU_PIECE_KIND_AT; above it VGPU_KIND_*; 0: the row is free */
};

/* One per process and device. Only `bytes` and `count` are written by others than the owner. */
struct vgpu_usage_slot_device {
    uint64_t bytes; /* ledger.h: W; 16-aligned */
    uint64_t count;
    union {
        struct {
            uint16_t
                delay_counts[VGPU_DELAY_BUCKETS]; /* delay.h: how long launches were held back */
            uint64_t windows;       /* of the arbiter, in which this process launched */
            uint64_t books;         /* VGPU_BOOKS_* */
            uint64_t kind_bytes[8]; /* by VGPU_KIND_*; plain is the rest of `bytes` */
        };
        struct vgpu_usage_piece pieces[VGPU_SLOT_PIECES]; /* of a slot for pieces of this device */
    };
    uint64_t peak_bytes;
    uint64_t launches;
    uint64_t gpu_time_ns; /* charged GPU time, corrected by measurement */
    uint64_t held_ns;     /* time launches were held back */
    uint64_t refused_count;
    uint64_t in_flight_ns;       /* charged, and not yet part of gpu_time_ns */
    uint64_t in_flight_since_ns; /* CLOCK_MONOTONIC: when the first of it began at the earliest */
    uint64_t waits_since_ns;     /* launch_queue.h: when its longest waiter came; 0: nobody waits */
    uint64_t refused_asked_bytes; /* the last refusal */
    uint64_t refused_used_bytes;
    uint64_t refused_limit_bytes;
    uint64_t refused_at_ns;     /* CLOCK_REALTIME */
    uint64_t refused_kind;      /* VGPU_KIND_* */
    uint64_t sampled_gpu_ns[2]; /* utilisation.h: at the device's two samples */
    uint64_t waits_until_ns;    /* launch_queue.h: the former counts until here */
};

/* cffi reads the structs above; the compiler checks them here. */
#ifndef VGPU_CFFI
#include <stddef.h>
#define VGPU_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " changed size")
#define VGPU_AT(type, field, at) \
    _Static_assert(offsetof(struct type, field) == (at), #type "." #field " moved")
VGPU_SIZE(vgpu_limits_header, 256);
VGPU_AT(vgpu_limits_header, magic, 0);
VGPU_AT(vgpu_limits_header, layout_version, 8);
VGPU_AT(vgpu_limits_header, header_bytes, 12);
VGPU_AT(vgpu_limits_header, file_bytes, 16);
VGPU_AT(vgpu_limits_header, active_generation, 128);
VGPU_SIZE(vgpu_limits_copy, 128);
VGPU_SIZE(vgpu_device_limit, 256);
VGPU_AT(vgpu_device_limit, memory_limit_bytes, 64);
VGPU_AT(vgpu_device_limit, core_percent, 96);
VGPU_AT(vgpu_device_limit, mps_pinned_bytes, 112);
VGPU_SIZE(vgpu_grant, 64);
VGPU_AT(vgpu_grant, window, 40);
VGPU_SIZE(vgpu_usage_header, 256);
VGPU_AT(vgpu_usage_header, magic, 0);
VGPU_AT(vgpu_usage_header, layout_version, 8);
VGPU_AT(vgpu_usage_header, header_bytes, 12);
VGPU_AT(vgpu_usage_header, file_bytes, 16);
VGPU_AT(vgpu_usage_header, hi_slot, 128);
VGPU_SIZE(vgpu_usage_device, 256);
VGPU_AT(vgpu_usage_device, virtual_time_ns, 64);
VGPU_AT(vgpu_usage_device, sampling_ns, 128);
VGPU_AT(vgpu_usage_device, charged_ns, 160);
VGPU_AT(vgpu_usage_device, context_bytes, 240);
VGPU_SIZE(vgpu_usage_slot, 128);
VGPU_AT(vgpu_usage_slot, unknown_entries, 8);
VGPU_AT(vgpu_usage_slot, noted_entry, 16);
VGPU_AT(vgpu_usage_slot, pid, 64);
VGPU_SIZE(vgpu_usage_slot_device, 256);
VGPU_AT(vgpu_usage_slot_device, delay_counts, 16);
VGPU_AT(vgpu_usage_slot_device, kind_bytes, 64);
VGPU_AT(vgpu_usage_slot_device, peak_bytes, 128);
VGPU_AT(vgpu_usage_slot_device, in_flight_ns, 168);
VGPU_AT(vgpu_usage_slot_device, refused_asked_bytes, 192);
#endif

#endif
