/* Pieces of memory that several processes may hold, each charged once as long as any of them lives.
 *
 * A slot stands for up to VGPU_SLOT_PIECES pieces that one process made on one device: their bytes
 * are charged to the slot, and its rows say which they are. Who holds a piece has read locks on both
 * bytes of the slot and on that of the piece, through a description and a page of its own. So the
 * kernel knows of each piece who holds it, in whatever order they end.
 *
 * - The rows change under a lock of the slot that nobody waits for. A piece is charged before its
 *   row is written, and given back after that is erased: whoever has the lock next gives back what
 *   is charged beyond the rows, should a process have been killed in between.
 * - A piece is erased with its byte locked for writing, so that nobody holds it, or joins it.
 * - Who comes to a slot that its last holder may just have left moves `gen` and then the ledger's
 *   total on, so that no reaper that looked before can still succeed, and looks at the bytes
 *   afterwards. If none are left, all its pieces ended.
 *
 * A stopped process delays nobody: what it keeps others from erasing stays charged. While slots are
 * locked no child may be forked: the caller holds the fork guard (region.c). */
#ifndef VGPU_SLOT_PIECES_H
#define VGPU_SLOT_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "slice/ledger.h"
#include "slice/slot.h"

/* A piece that this process holds. */
struct held_piece {
    struct slot slot;
    uint32_t at; /* its row */
};

/* Where the lock of who holds a piece lies. */
static inline uint64_t slot_piece_byte(uint32_t slot, uint32_t at)
{
    return VGPU_LOCK_PIECES + (uint64_t)VGPU_PIECE_LOCKS * slot + 1 + at;
}

/* All below: `ledger` is of the piece's device, with the path of `usage` as is_held_context. */

/* Charges a piece and makes it this process's, under a key (not 0) by which others join it. Returns
 * 0, -EUSERS where no slot is free, or another negative errno. */
int slot_piece_make(struct held_piece *piece, const struct ledger *ledger, uint64_t key,
                    uint16_t kind, uint64_t bytes);

/* Joins the piece with that key. Returns its bytes, 0 when there is no such piece (any more). */
uint64_t slot_piece_join(struct held_piece *piece, const struct ledger *ledger, uint64_t key);

/* Lets go; the bytes are given back when nobody else holds the piece. */
void slot_piece_leave(struct held_piece *piece, const struct ledger *ledger);

/* Whether who made a piece holds it; not to be asked by its maker. `usage` is open. */
bool slot_piece_is_with_maker(int usage, uint32_t slot, uint32_t at);

/* For ledger.reclaim: gives back what nobody holds any more of a slot that is held. */
int slot_pieces_reclaim(const struct ledger *ledger, uint32_t slot);

/* The next piece of the file from *at on, a number that begins at 0 and is moved on; false: there
 * is none. What it says may be over by the time it is read. */
struct piece_seen {
    uint32_t slot;
    uint32_t row;
    uint32_t device;
    uint64_t key;
};
bool slot_pieces_next(void *usage, uint32_t *at, struct piece_seen *seen);

#endif
