/* Claiming one of the slots of `usage` for this process, and asking who holds the others.
 *
 * A slot has two byte locks that last as long as the process (life.h): CLAIM excludes other claimers
 * while the slot is cleaned, LIFE says that its bytes are taken. Forked children inherit a lock on
 * LIFE (slot_bequeath), as they do the driver's files: so a slot with LIFE alone is one whose process
 * has ended, while its memory stays in the device. While the locks are taken no child may be forked:
 * the caller holds the fork guard (region.c). */
#ifndef VGPU_SLOT_H
#define VGPU_SLOT_H

#include <stdint.h>

struct slot {
    uint32_t index;
    void *life_page; /* keeps the locks (life.h) */
};

/* Claims a slot of the mapped `usage` whose file is `path`; what a dead user left in it is given
 * back first. Returns 0, -EUSERS when all are taken, -ENOLCK where the file system loses the
 * locks, or another negative errno. */
int slot_claim(struct slot *slot, const char *path, void *usage, const void *limits);

/* Lets children that are forked from now on keep the slot, also beyond this process's end, or no
 * longer those that were. */
struct lifeline;
void slot_bequeath(const struct lifeline *line, const struct slot *slot);
void slot_disinherit(const struct lifeline *line, const struct slot *slot);

/* ---- pieces of memory that several processes hold ----
 *
 * Such a piece has a slot of its own, to which its bytes are charged. Each process that holds it
 * has read locks on both bytes of the slot, through a description and a page of its own, so that
 * the bytes stay charged until the last of them is gone, in whatever order they end. Who joins a
 * piece that its last holder may just have left moves `gen` and then the ledger's total on, so that
 * no reaper that looked before can still succeed, and looks at the bytes afterwards. */

/* Claims a slot for a piece with that key (not 0). The caller charges its bytes to the slot. */
int slot_claim_shared(struct slot *slot, const char *path, void *usage, const void *limits,
                      const uint64_t key[2]);

/* Joins the piece with that key. Returns its bytes and the index of their device, 0 when there is
 * no such piece (any more). */
uint64_t slot_join_shared(struct slot *slot, const char *path, void *usage, const void *limits,
                          const uint64_t key[2], uint32_t *device);

/* Lets go; the bytes are given back when nobody else holds the piece. */
void slot_leave_shared(struct slot *slot, const char *path, void *usage, const void *limits,
                       uint32_t device);

/* For ledger.is_held: `context` is the path of `usage`. Says 1 when it cannot be told, and while
 * children of a process that has ended keep the slot. */
int slot_is_held(void *context, uint32_t slot);

#endif
