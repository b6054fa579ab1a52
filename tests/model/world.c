/* What surrounds the steps: how a run begins, crashes, and what must hold in every state. */
#include <string.h>

#include "model.h"

void model_begin(struct thread *thread, enum operation_kind kind, uint8_t bytes)
{
    static const struct {
        uint8_t mode;
        uint8_t step;
    } starts[] = {
        [NOTHING] = {0},
        [CLAIM] = {MODE_CLEAN, CLAIM_LOCK},
        [RESERVE] = {MODE_RESERVE, LOAD_TOTAL},
        [RELEASE_ALL] = {MODE_RELEASE, LOAD_TOTAL},
        [JOIN] = {MODE_JOIN, JOIN_FIND},
        [LEAVE] = {MODE_LEAVE, LEAVE_GEN},
    };
    size_t kept = offsetof(struct thread, bytes);
    memset((unsigned char *)thread + kept, 0, sizeof *thread - kept);
    thread->status = RUNNING;
    thread->bytes = bytes;
    thread->mode = starts[kind].mode;
    thread->step = starts[kind].step;
}

/* Begins the operation at `index`, or one after it when there is nothing to do for that one. */
static void begin_from(struct thread *thread, uint8_t which, uint8_t index)
{
    for (; index < MOST_OPERATIONS; index++) {
        const struct operation *operation = &scenario->operations[which][index];
        bool idle = operation->kind == NOTHING ||
                    (operation->kind == RELEASE_ALL && thread->held == 0) ||
                    (operation->kind == LEAVE && !thread->holds_piece) ||
                    ((operation->kind == RESERVE || operation->kind == RELEASE_ALL) &&
                     thread->slot == NO_SLOT);
        if (idle)
            continue;
        model_begin(thread, operation->kind, operation->bytes);
        thread->operation = index;
        return;
    }
    model_begin(thread, NOTHING, 0);
    thread->operation = MOST_OPERATIONS;
    thread->status = FINISHED;
}

void model_next_operation(struct thread *thread, uint8_t which)
{
    begin_from(thread, which, thread->operation + 1);
}

struct state model_start(void)
{
    struct state state;
    memset(&state, 0, sizeof state);
    state.limit = scenario->limit;
    state.limit_changed = scenario->limit == scenario->limit_afterwards;
    state.crashes_left = scenario->crashes;
    for (uint8_t which = 0; which < scenario->threads; which++) {
        struct thread *thread = &state.threads[which];
        uint8_t slot = thread->slot = scenario->slot[which];
        if (slot != NO_SLOT) {
            uint8_t holder = (uint8_t)(1 << scenario->process[which]);
            state.slots[slot] =
                (struct model_slot){.gen = 1, .claim = holder, .life = holder, .is_claiming = true};
            state.hi_slot = state.hi_slot > slot ? state.hi_slot : slot + 1;
        }
        thread->holds_piece = which == 0 && scenario->piece_bytes > 0;
        begin_from(thread, which, 0);
    }
    if (scenario->piece_bytes > 0) {
        state.slots[0] = (struct model_slot){
            .word = {scenario->piece_bytes, 0}, .gen = 1, .claim = 1, .life = 1, .is_piece = true};
        state.total.used = scenario->piece_bytes;
    }
    for (uint8_t which = scenario->threads; which < MOST_THREADS; which++)
        state.threads[which].status = DEAD;
    return state;
}

int model_slot_bytes(const struct state *state, uint8_t slot)
{
    struct word word = state->slots[slot].word;
    bool in_flight =
        state->total.slot == slot && (uint8_t)(word.count + 1) == state->total.sequence;
    return word.bytes + (in_flight ? state->total.delta : 0);
}

/* Children inherit the slot of a process that has one. */
static void bequeath(struct state *state, uint8_t index)
{
    struct model_slot *slot = &state->slots[index];
    slot->life |= HEIRS;
    slot->kept = (uint8_t)model_slot_bytes(state, index);
}

bool model_end_heirs(struct state *state)
{
    bool had = false;
    for (uint8_t index = 0; index < scenario->slots; index++) {
        struct model_slot *slot = &state->slots[index];
        had |= (slot->life & HEIRS) != 0;
        slot->life &= (uint8_t)~HEIRS;
        slot->kept = 0;
    }
    return had;
}

void model_crash(struct state *state, uint8_t process)
{
    for (uint8_t which = 0; which < scenario->threads; which++)
        if (scenario->process[which] == process) {
            if (scenario->has_heirs && state->threads[which].slot != NO_SLOT)
                bequeath(state, state->threads[which].slot);
            memset(&state->threads[which], 0, sizeof state->threads[which]);
            state->threads[which].status = DEAD;
        }
    for (uint8_t slot = 0; slot < scenario->slots; slot++)
        model_unlock(&state->slots[slot], process);
}

/* A piece is held while somebody is joining it, too: what he was handed keeps it in the device. */
static bool is_live(const struct state *state, uint8_t slot)
{
    if (state->slots[slot].life & HEIRS)
        return true;
    for (uint8_t which = 0; which < scenario->threads; which++) {
        const struct thread *thread = &state->threads[which];
        bool is_joining = thread->mode == MODE_JOIN && thread->step != JOIN_FIND;
        if (thread->status != DEAD && thread->slot == slot)
            return true;
        if (state->slots[slot].is_piece && (thread->holds_piece || is_joining))
            return true;
    }
    return false;
}

int model_live_bytes(const struct state *state)
{
    int bytes = 0;
    for (uint8_t slot = 0; slot < scenario->slots; slot++)
        if (is_live(state, slot))
            bytes += model_slot_bytes(state, slot);
    return bytes;
}

int model_locked_bytes(const struct state *state)
{
    int bytes = 0;
    for (uint8_t slot = 0; slot < scenario->slots; slot++)
        if (state->slots[slot].life != 0)
            bytes += model_slot_bytes(state, slot);
    return bytes;
}

bool model_is_tentative(const struct thread *thread)
{
    if (thread->mode == MODE_UNDO)
        return thread->step != COMMIT;
    return thread->mode == MODE_RESERVE && (thread->step == COMMIT || thread->step == LIMIT_AGAIN);
}

const char *model_wrong(const struct state *state)
{
    int sum = 0;
    int held[MOST_SLOTS] = {0};
    bool has_user[MOST_SLOTS] = {0};
    bool is_piece_held = false;
    for (uint8_t which = 0; which < scenario->threads; which++)
        is_piece_held |= state->threads[which].holds_piece;
    for (uint8_t which = 0; which < scenario->threads; which++)
        if (state->threads[which].status != DEAD && state->threads[which].slot != NO_SLOT) {
            held[state->threads[which].slot] += state->threads[which].held;
            has_user[state->threads[which].slot] = true;
        }
    for (uint8_t index = 0; index < scenario->slots; index++) {
        const struct model_slot *slot = &state->slots[index];
        int bytes = model_slot_bytes(state, index);
        sum += bytes;
        if (bytes < 0 || slot->word.bytes > 127)
            return "a slot holds less than nothing";
        if (slot->gen % 2 == 0 && bytes != 0)
            return "a slot that is free and clean holds bytes";
        if ((slot->life & HEIRS) != 0 && bytes != slot->kept)
            return "what children keep is not charged";
        if (slot->is_piece) {
            if (is_piece_held && bytes != scenario->piece_bytes)
                return "a piece that somebody holds is not charged";
        } else if (has_user[index] && bytes != held[index])
            return "a slot does not hold what its user was granted";
    }
    if (state->total.used != sum)
        return "the total is not the sum of the slots";
    int most =
        scenario->limit > scenario->limit_afterwards ? scenario->limit : scenario->limit_afterwards;
    return state->total.used > most ? "the total exceeds every limit there was" : NULL;
}
