#include "slice/piece_heirs.h"

#include <fcntl.h>
#include <string.h>

static uint32_t bequeathed[SLOTS_OF_PIECES][VGPU_SLOT_PIECES]; /* so often */

void piece_bequeath(const struct lifeline *line, const struct held_piece *piece)
{
    uint32_t slot = piece->slot.index;
    bequeathed[slot][piece->at]++;
    slot_bequeath(line, &piece->slot);
    lifeline_lock(line, slot_piece_byte(slot, piece->at), F_RDLCK);
}

void piece_disinherit(const struct lifeline *line, const struct held_piece *piece)
{
    uint32_t slot = piece->slot.index, of_slot = 0;
    if (--bequeathed[slot][piece->at] == 0)
        lifeline_lock(line, slot_piece_byte(slot, piece->at), F_UNLCK);
    for (uint32_t at = 0; at < VGPU_SLOT_PIECES; at++)
        of_slot += bequeathed[slot][at];
    if (of_slot == 0)
        slot_disinherit(line, &piece->slot);
}

void piece_heirs_after_fork(void)
{
    memset(bequeathed, 0, sizeof bequeathed);
}
