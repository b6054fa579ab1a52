/* Claiming one of the slots of `usage` for this process, and asking who holds the others.
 *
 * A slot has two byte locks, both OFD locks of one open description: CLAIM excludes other claimers
 * while the slot is cleaned, LIFE says that its user lives. The only reference to that description
 * is one page mapped from it with MADV_DONTFORK; the descriptor is closed again. So neither a child
 * nor a program that closes all its descriptors can keep or drop the locks, and the kernel drops
 * them with the process, however it ends. Between open and close no child may be forked:
 * the caller holds the fork guard (region.c). */
#ifndef VGPU_SLOT_H
#define VGPU_SLOT_H

#include <stdint.h>

struct slot {
    uint32_t index;
    void *life_page; /* keeps the locks; never touched */
};

/* Claims a slot of the mapped `usage` whose file is `path`; what a dead user left in it is given
 * back first. Returns 0, -EUSERS when all are taken, or another negative errno. */
int slot_claim(struct slot *slot, const char *path, void *usage, const void *limits);

/* For ledger.is_held: `context` is the path of `usage`. Says 1 when it cannot be told. */
int slot_is_held(void *context, uint32_t slot);

#endif
