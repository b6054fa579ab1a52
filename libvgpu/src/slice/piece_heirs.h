/* What forked children inherit of the pieces that their parent holds (slot_pieces.h): as of its slot, locks on
 * the lifeline (life.h). A process may hold a piece more than once, and several pieces of one slot. So they are
 * counted, and each lock is given up with the last that needs it. Under the fork guard. */
#ifndef VGPU_PIECE_HEIRS_H
#define VGPU_PIECE_HEIRS_H

#include "slice/life.h"
#include "slice/slot_pieces.h"

void piece_bequeath(const struct lifeline *line, const struct held_piece *piece);
void piece_disinherit(const struct lifeline *line, const struct held_piece *piece);

/* The child of a fork holds none. */
void piece_heirs_after_fork(void);

#endif
