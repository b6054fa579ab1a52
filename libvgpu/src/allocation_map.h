/* What each device pointer of this process was charged: address -> allocation.
 *
 * 64 shards by address, each an open-addressing table with linear probing behind a lock of its own,
 * so that threads rarely meet. Tables grow by doubling and live in anonymous mappings (the hook may
 * run inside the program's own allocator). A forked child starts empty: the driver's memory is its
 * parent's. */
#ifndef VGPU_ALLOCATION_MAP_H
#define VGPU_ALLOCATION_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct allocation {
    uint64_t address; /* never 0 */
    uint64_t bytes;
    uint64_t context; /* handle it was made in; 0 for memory that outlives contexts */
    uint16_t device;  /* index in `limits` */
    uint16_t kind;    /* VGPU_KIND_* */
    uint32_t reserved;
};

/* False only when the kernel gives no memory for the table. An entry that stood at that address
 * goes into *displaced. */
bool allocation_map_insert(const struct allocation *allocation, struct allocation *displaced);

/* Takes the entry out; false when there is none. */
bool allocation_map_take(uint64_t address, struct allocation *taken);

/* How far a search through the whole map has come; begins all zero. */
struct allocation_walk {
    uint32_t shard;
    uint64_t place;
};

/* Takes the next entry of that context out; false when none is left. */
bool allocation_map_take_of_context(uint64_t context, struct allocation_walk *walk,
                                    struct allocation *taken);

/* Empties the map and its locks, in the child of a fork. */
void allocation_map_reset(void);

#endif
