/* What each device pointer, array, module … of this process was charged: handle -> allocation.
 * Handles of different kinds may have the same number, so each kind has a space of its own.
 *
 * 64 shards by address, each an open-addressing table with linear probing behind a lock of its own,
 * so that threads rarely meet. Tables grow by doubling and live in anonymous mappings (the hook may
 * run inside the program's own allocator). A forked child starts empty: the driver's memory is its
 * parent's. */
#ifndef VGPU_ALLOCATION_MAP_H
#define VGPU_ALLOCATION_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum allocation_space {
    SPACE_ADDRESS,  /* device pointers */
    SPACE_CONTEXT,  /* CUcontext and CUgreenCtx, for what they cost themselves */
    SPACE_LIMIT,    /* CUcontext, one entry per limit that takes memory (hook_limit.c) */
    SPACE_ARRAY,    /* CUarray, CUmipmappedArray */
    SPACE_MODULE,   /* CUmodule, CUlibrary */
    SPACE_EXTERNAL, /* CUexternalMemory */
    SPACE_LATE,     /* CUevent behind a free in a stream's order (deferred_free.c) */
    SPACE_HANDLE    /* CUmemGenericAllocationHandle: told to owners; the records are in vmm.c */
};

struct allocation {
    uint64_t address; /* or another handle, of `space`; never 0 */
    uint64_t bytes;
    uint64_t context; /* handle it was made in; 0 for memory that outlives contexts */
    void *owner;      /* what else must be told of its end; NULL: nothing (charge.h) */
    uint16_t device;  /* index in `limits` */
    uint16_t kind;    /* VGPU_KIND_* */
    uint32_t space;   /* enum allocation_space */
    uint32_t opens;   /* how often imported memory was opened at that address, less one */
};

/* False only when the kernel gives no memory for the table. An entry that stood at that address
 * goes into *displaced. */
bool allocation_map_insert(const struct allocation *allocation, struct allocation *displaced);

/* Takes the entry out; false when there is none. */
bool allocation_map_take(enum allocation_space space, uint64_t address, struct allocation *taken);

/* Copies the entry; false when there is none. */
bool allocation_map_find(enum allocation_space space, uint64_t address, struct allocation *found);

/* Calls `look` for each entry of that space, under its shard's lock: it takes none. */
void allocation_map_each(enum allocation_space space,
                         void (*look)(const struct allocation *allocation, void *argument),
                         void *argument);

/* How far a search through the whole map has come; begins all zero. */
struct allocation_walk {
    uint32_t shard;
};

/* Takes the next entry of that context out; false when none is left. */
bool allocation_map_take_of_context(uint64_t context, struct allocation_walk *walk,
                                    struct allocation *taken);

/* For fork.c: empties the map. */
void allocation_map_after_fork(void);

#endif
