/* Memory that several processes of a container may hold: charged once, as long as any of them
 * lives.
 *
 * Who exports an allocation moves its bytes from the own account to a slot for such pieces
 * (slot_pieces.h), under a key that the importer can work out: the bytes of the handle, or a lock
 * that the exported file description carries (descriptor.h). For the instant of the move they are
 * charged twice. Who imports joins the piece; what cannot be matched (exported by another container,
 * or by a program without the shim, or all places taken) is charged to the importer.
 *
 * Each piece is a record that owns the entries of the allocation map (or of vmm.h) it stands for,
 * and ends with the last of them; but a piece of which a descriptor was given out stays charged
 * until all copies of that are closed (looked for when anything else is shared or refused, and at
 * quiet moments: reconcile.h). One mutex, under which locks of pools are taken and the driver is asked what a pool keeps. A forked
 * child starts without records: it holds none of the driver's memory. */
#ifndef VGPU_SHARED_MEMORY_H
#define VGPU_SHARED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/ledger/charge.h"

struct shared;
struct pool;

/* The key of memory that is known by `count` bytes of a handle. */
uint64_t shared_memory_key_of_bytes(const void *handle, size_t count);

/* A key of its own, for memory that is known by descriptors. */
uint64_t shared_memory_key_new(void);

/* Charges the bytes of `charge` as a shared piece as well; the piece is this process's for one
 * entry, whose owner is returned. NULL: there is no place. The caller gives up the old charge next:
 * of a pool by pool_hand_over, to which they go back at the end; else `parent` is NULL. */
struct charge_owner *shared_memory_export(const struct charge *charge, uint64_t key,
                                          struct pool *parent);

/* Joins the piece with that key, for one entry; *charge tells its device and bytes, and is not to
 * be cancelled. NULL: nobody of this container has it, or the key is 0. */
struct charge_owner *shared_memory_join(uint64_t key, struct charge *charge);

/* Gives back what had no user here at the last look, if no descriptor of it is open any more. */
void shared_memory_look(void);

/* Whether an owner is a shared piece. */
bool shared_memory_is(const struct charge_owner *owner);

/* The bytes of all pieces on a device that this process has, by whichever charge. */
uint64_t shared_memory_held_bytes(uint32_t device);

/* Of these, those that another process made and holds, too. */
uint64_t shared_memory_imported_bytes(uint32_t device);

/* The key of a descriptor that this container exported; 0: it is none. */
uint64_t shared_memory_key_of_descriptor(int descriptor);

/* Marks a descriptor as one of the piece: from now on it is charged until that is closed, too. */
void shared_memory_mark_descriptor(struct charge_owner *owner, int descriptor);

/* For fork.c. */
void shared_memory_after_fork(void);

#endif
