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

#include "vgpu/contract.h"

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

/* For slot_pieces.c: claims a slot for pieces of the ledger's device. Its locks are then read locks of
 * that description. Pieces may take half of the slots: a process without one can be granted nothing. */
#define SLOTS_OF_PIECES (VGPU_SLOT_COUNT / 2)
struct ledger;
struct life;
int slot_claim_for_pieces(const struct ledger *ledger, const struct life *life, uint32_t *index);

/* Where a lock of a slot lies. */
static inline uint64_t slot_byte(uint32_t slot, int which)
{
    return VGPU_LOCK_BASE + 2ull * slot + (unsigned)which;
}

/* For ledger.is_held: `context` is the path of `usage`. Says 1 when it cannot be told, and while
 * children of a process that has ended keep the slot. */
int slot_is_held(void *context, uint32_t slot);

#endif
