/* The records of memory that is taken by handle (cuMemCreate) and mapped, bound or put into arrays
 * apart from that: a charge ends when no reference to the handle is left *and* nothing uses the
 * memory. Pure: no CUDA here but charge.h; the hooks around it call the driver.
 *
 * The driver decides and we follow, whatever threads of the program race with each other: a use is
 * written down before the driver is asked for it and crossed out when the driver refuses; it and a
 * reference end here only after the driver has ended them. So the records may keep memory for
 * an instant longer than the driver, and never shorter.
 *
 * - A call that ends what lies in a range ends what was known to be there *before* the call began
 *   (vmm_now): what another thread puts there meanwhile has a later number and stays.
 * - A call that asks what lies at an address (retain, bind by address) does not know its answer
 *   beforehand: what is unmapped there meanwhile is kept until it has returned.
 * - The driver may give a number out again as soon as it is free, before our records have heard of
 *   its end: the record that had it is then known to nobody, and ends with the last call that is
 *   still at work on it. Where such a call may have met the new memory, both are kept.
 *
 * One lock serialises all of this; it is never held across a call of the driver, an owner or the
 * ledger. A forked child starts empty. */
#ifndef VGPU_VMM_H
#define VGPU_VMM_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger/charge.h"
#include "memory/vmm/vmm_ranges.h"

struct vmm_record;

/* A call of the driver under way, from its _begin to its _end. */
struct vmm_call {
    struct vmm_place place; /* of the range written down for it */
    uint64_t id;
    uint64_t object_handle; /* what is bound to */
    struct vmm_record *object;
    struct vmm_record *spare; /* for a handle that turns out to be new */
    struct vmm_place bound;
};

/* The number of this moment: whatever was confirmed up to now has a number that is not higher. */
uint64_t vmm_now(void);

/* A number that nothing else here has. */
uint64_t vmm_new_number(void);

/* ---- handles: all _begin are false, or NULL, when there is no host memory for the records ---- */

/* Takes the charge over, whatever becomes of the call. */
struct vmm_record *vmm_create_begin(const struct charge *charge);
void vmm_create_end(struct vmm_record *record, uint64_t handle, bool made);

/* NULL: a handle that we do not know, which is nothing to end. */
struct vmm_record *vmm_release_begin(uint64_t handle);
void vmm_release_end(struct vmm_record *record, bool released);

/* A reference by an address into a mapping. */
bool vmm_retain_begin(struct vmm_call *call, uint64_t address);
void vmm_retain_end(struct vmm_call *call, uint64_t handle, bool retained);

/* ---- uses ---- */

/* Memory in use at a place: a mapping, or a tile of a sparse array. */
bool vmm_use_begin(struct vmm_call *call, struct vmm_place place, uint64_t handle);
void vmm_use_end(struct vmm_call *call, bool used);

/* The mappings within that range that were there at `before` have ended. */
void vmm_unmapped(uint64_t address, uint64_t bytes, uint64_t before);

/* A multicast object: it takes no memory itself. */
struct vmm_record *vmm_object_begin(void);
void vmm_object_end(struct vmm_record *object, uint64_t handle, bool made);

/* Memory bound to a multicast object, by its handle or by the address it is mapped at. */
bool vmm_bind_begin(struct vmm_call *call, uint64_t object, uint64_t offset, uint64_t bytes,
                    uint64_t handle);
void vmm_bind_end(struct vmm_call *call, bool bound);
bool vmm_bind_address_begin(struct vmm_call *call, uint64_t object, uint64_t offset, uint64_t bytes,
                            uint64_t address);
void vmm_bind_address_end(struct vmm_call *call, bool bound);

/* What was bound at `before` from `offset` on and is memory of that device (index in `limits`). */
void vmm_unbind(uint64_t object, uint64_t offset, uint64_t bytes, int device, uint64_t before);

/* ---- tiles of sparse arrays ---- */

/* The region's unmapping was put on a stream: what was there at `before` ends once the work of that
 * stream is done. `stream` is a number that no other stream ever has. */
void vmm_tile_leaves(struct vmm_place place, uint64_t before, uint64_t stream);

/* All that was put on `stream` up to `before` is done. */
void vmm_stream_done(uint64_t stream, uint64_t before);

/* An array has ended, and with it what was mapped into it. */
void vmm_array_ended(uint64_t array);

/* ---- memory that more processes than this one hold ---- */

/* Moves the charge of a handle's memory to `owner`, whose release is called, without a lock, in
 * place of giving the bytes back. False: unknown, not charged, or it has an owner already. */
bool vmm_hand_over(uint64_t handle, struct charge_owner *owner, uint64_t *bytes, int *device);

/* What a handle's memory is charged, and its owner or NULL. False: unknown, or not charged. */
bool vmm_find(uint64_t handle, struct charge *charge, struct charge_owner **owner);

/* What an imported handle is charged so far whose size nobody tells; false: it is none. _set_charge
 * changes that, if it is still `from` bytes; to less only while the caller's own use is the only
 * one: another may count on what is charged. */
bool vmm_find_unsized(uint64_t handle, struct charge *charge);
bool vmm_set_charge(uint64_t handle, uint64_t from, uint64_t bytes);

/* An imported handle, with one reference and an owner or NULL. False: it stands for memory that has
 * a record here already; that has one reference more now, and the charge is not needed. */
bool vmm_adopt(uint64_t handle, const struct charge *charge, struct charge_owner *owner);

#endif
