/* Coming to a slot for pieces of memory that several processes hold, and leaving it, with one piece
 * (slot_piece_join and slot_piece_leave of slot_pieces.c). */
#include <string.h>

#include "model.h"

void model_unlock(struct model_slot *slot, uint8_t process)
{
    if (slot->claim & 1 << process)
        slot->is_claiming = false;
    slot->claim &= (uint8_t)~(1 << process);
    slot->life &= (uint8_t)~(1 << process);
}

static enum outcome go(struct thread *thread, enum step step)
{
    thread->step = (uint8_t)step;
    return GOES_ON;
}

static enum outcome give_up(struct model_slot *slot, uint8_t process)
{
    model_unlock(slot, process);
    return ENDED;
}

enum outcome model_step_piece(struct state *state, struct thread *thread, uint8_t which)
{
    struct model_slot *slot = &state->slots[0];
    uint8_t process = scenario->process[which];
    uint8_t bit = (uint8_t)(1 << process);
    thread->other = 0;
    switch (thread->step) {
    case JOIN_FIND:
        return slot->gen % 2 == 1 && slot->is_piece ? go(thread, JOIN_CLAIM) : ENDED;
    case JOIN_CLAIM:
        if (slot->is_claiming)
            return ENDED;
        slot->claim |= bit;
        return go(thread, JOIN_LIFE);
    case JOIN_LIFE:
        slot->life |= bit;
        return go(thread, JOIN_GEN);
    case JOIN_GEN:
        thread->gen = slot->gen;
        if (slot->gen % 2 == 0 || !slot->is_piece)
            return give_up(slot, process);
        return go(thread, planted_fault == FAULT_JOIN_SAME_GEN ? LOAD_TOTAL : JOIN_GEN_CAS);
    case JOIN_GEN_CAS:
        if (slot->gen != thread->gen)
            return go(thread, JOIN_GEN);
        slot->gen += 2;
        thread->gen = 0;
        return go(thread, planted_fault == FAULT_JOIN_SAME_TOTAL ? JOIN_BYTES : LOAD_TOTAL);
    case JOIN_BYTES:
        if (slot->word.bytes == 0)
            return give_up(slot, process);
        thread->holds_piece = true;
        return ENDED;
    case LEAVE_GEN:
        thread->gen = slot->gen;
        return go(thread, LEAVE_DROP);
    case LEAVE_DROP:
        model_unlock(slot, process);
        thread->holds_piece = false;
        return go(thread, LEAVE_HELD);
    default: /* LEAVE_HELD */
        return slot->life != 0 || thread->gen % 2 == 0 ? ENDED : go(thread, LOAD_TOTAL);
    }
}
