/* This process's place in its container's slice: the two files, mapped, and its slot.
 *
 * Where they are: a shim that the container runtime mounted (its own file lies under
 * /run/vgpu/lib/) is *managed*: the files are in /run/vgpu, no environment variable is asked, and
 * files that are missing or damaged mean that everything is refused. Any other shim looks where
 * VGPU_DIR says, else in /run/vgpu, and is inert when there is nothing there.
 *
 * Opening and claiming are serialised by one mutex, the fork guard: it is taken before every fork,
 * so that no child inherits the descriptor of a claim. A child inherits the lifeline on purpose. It
 * starts without a slot and claims its own when it first needs one. Readers of `region` after a successful open need no lock. */
#ifndef VGPU_REGION_H
#define VGPU_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "slice/ledger.h"
#include "slice/slot_pieces.h"

enum region_state {
    REGION_UNKNOWN, /* not looked for yet */
    REGION_NONE,    /* there is no slice: everything passes */
    REGION_REFUSE,  /* there should be one and it cannot be read: nothing is granted */
    REGION_MAPPED,
};

/* Looks for the files once and maps them. */
enum region_state region_open(void);

/* Says once a process on stderr that there is no slice, if so. */
void region_tell_if_absent(void);

/* True when the container runtime mounted this library: the environment then has no say. */
bool region_is_managed(void);

/* Also claims a slot. False when this process can be charged nothing: refuse then. */
bool region_claim(void);

/* All below: only after region_open returned REGION_MAPPED. */
/* Who set the limits, for messages. */
const char *region_owner(void);

const void *region_limits(void);
void *region_usage(void);
uint32_t region_device_count(void);
uint32_t region_family(void);

/* Index of the device named `uuid` (the text behind "GPU-" or "MIG-" counts); -1: not ours. */
int region_find_device(const char *uuid);

/* The ledger of a device. */
struct ledger region_ledger(uint32_t device);

/* What all processes of the container share of a device. */
struct vgpu_usage_device *region_shared(uint32_t device);

/* From here on children inherit what keeps this process's slot, whenever it claims it. Called when the
 * driver opens its own files (life.h). */
void region_open_lifeline(void);

/* After region_claim. */
uint32_t region_slot(void);
struct vgpu_usage_slot *region_own_slot(void); /* NULL before */
struct vgpu_usage_slot_device *region_counters(uint32_t device);

/* Pieces of memory that several processes hold (slot_pieces.h), under the fork guard. _make says
 * whether there was a place. */
bool region_piece_make(struct held_piece *piece, uint32_t device, uint64_t key, uint16_t kind,
                       uint64_t bytes);
uint64_t region_piece_join(struct held_piece *piece, uint64_t key, uint32_t *device);
void region_piece_leave(struct held_piece *piece, uint32_t device);

/* Opens `usage` to ask who holds what (life_look). */
int region_look(void);

/* Makes the device's arbiter look at what this container wants. False when there is none. */
bool region_ring(uint32_t device);

/* Adds to one of these counters; several threads may. */
static inline void region_add(uint64_t *counter, int64_t value)
{
    __atomic_fetch_add(counter, (uint64_t)value, __ATOMIC_RELAXED);
}

/* Has the handlers of forks called from now on; once a process. False: the C library has no memory
 * for it. In hooks/fork.c, which knows what every room above has to forget. */
bool fork_watch(void);

/* For fork.c: around a fork, and in its child. */
void region_before_fork(void);
void region_after_fork_in_parent(void);
void region_after_fork(void);

#endif
