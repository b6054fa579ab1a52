/* The steps of the model, each one access to shared memory or one lock call. */
#include <string.h>

#include "model.h"

const struct scenario *scenario;
enum fault planted_fault;

static enum outcome restart(struct thread *thread, enum mode mode)
{
    thread->mode = mode;
    thread->step = LOAD_TOTAL;
    thread->other = thread->gen = thread->hi_slot = thread->limit = 0;
    memset(&thread->seen, 0, sizeof thread->seen);
    memset(&thread->word, 0, sizeof thread->word);
    memset(thread->notes, 0, sizeof thread->notes);
    return GOES_ON;
}

/* Loads the total once more for what the thread is doing; it keeps the slot it is about. */
static enum outcome load_again(struct thread *thread)
{
    if (thread->mode == MODE_REFUSE)
        return restart(thread, MODE_RESERVE);
    thread->step = LOAD_TOTAL;
    memset(&thread->seen, 0, sizeof thread->seen);
    memset(&thread->word, 0, sizeof thread->word);
    return GOES_ON;
}

static enum outcome go(struct thread *thread, enum step step)
{
    thread->step = (uint8_t)step;
    return GOES_ON;
}

/* The next slot that `step` of a proof is about, or `after` when there is none. */
static enum outcome next_slot(struct thread *thread, uint8_t from, enum step step, enum step after)
{
    thread->other = from == thread->slot ? from + 1 : from;
    if (thread->other < thread->hi_slot)
        return go(thread, step);
    thread->other = 0;
    return go(thread, after);
}

/* A slot that was looked at is forgotten, so that states differ by what matters only. */
static enum outcome slot_is_fine(struct thread *thread)
{
    memset(&thread->notes[thread->other], 0, sizeof thread->notes[0]);
    memset(&thread->word, 0, sizeof thread->word);
    return next_slot(thread, thread->other + 1, LOOK_GEN, LOOK_HI_SLOT);
}

static enum outcome settled(struct thread *thread)
{
    memset(&thread->word, 0, sizeof thread->word);
    switch (thread->mode) {
    case MODE_RESERVE:
    case MODE_UNDO:
        return go(thread, LIMIT);
    case MODE_RELEASE:
    case MODE_JOIN:
        return go(thread, OWN_WORD);
    case MODE_REFUSE:
        memset(&thread->seen, 0, sizeof thread->seen);
        thread->limit = 0;
        return next_slot(thread, 0, LOOK_GEN, LOOK_HI_SLOT);
    default:
        return go(thread, REAP_WORD);
    }
}

static enum outcome reaped(struct thread *thread)
{
    if (thread->mode == MODE_REAP)
        return restart(thread, MODE_RESERVE);
    memset(&thread->seen, 0, sizeof thread->seen);
    memset(&thread->word, 0, sizeof thread->word);
    if (thread->mode == MODE_LEAVE)
        return ENDED;
    if (planted_fault == FAULT_NO_PARITY)
        return go(thread, CLAIM_LIFE);
    return go(thread, CLAIM_EVEN);
}

static bool is_equal(struct total a, struct total b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool is_uncommitted(const struct state *state, struct total total)
{
    return (uint8_t)(state->slots[total.slot].word.count + 1) == total.sequence;
}

static void cas_word(struct state *state, uint8_t slot, struct word from, int delta)
{
    struct word *word = &state->slots[slot].word;
    if (word->bytes == from.bytes && word->count == from.count) {
        word->bytes = (uint8_t)(word->bytes + delta);
        word->count++;
    }
}

/* What the operation adds to the total. */
static int delta_of(const struct thread *thread)
{
    switch (thread->mode) {
    case MODE_RESERVE:
        return thread->bytes;
    case MODE_UNDO:
        return -thread->bytes;
    case MODE_RELEASE:
        return -thread->held;
    case MODE_JOIN:
        return 0;
    default:
        return -thread->word.bytes;
    }
}

/* The slot that the operation is booked on. */
static uint8_t booked_slot(const struct thread *thread)
{
    return thread->mode >= MODE_REAP ? thread->other : thread->slot;
}

static enum outcome cas_total(struct state *state, struct thread *thread)
{
    if (!is_equal(state->total, thread->seen))
        return load_again(thread);
    int delta = delta_of(thread);
    state->total = (struct total){
        .used = (uint8_t)(thread->seen.used + delta),
        .slot = booked_slot(thread),
        .sequence = (uint8_t)(thread->word.count + 1),
        .delta = (int8_t)delta,
    };
    thread->limit = thread->mode == MODE_RESERVE ? state->total.used : 0; /* the new total */
    thread->gen = thread->mode == MODE_CLEAN ? thread->gen : 0;
    thread->seen = (struct total){.delta = (int8_t)delta};
    if (thread->mode < MODE_REAP)
        thread->held = (uint8_t)(thread->held + delta);
    return go(thread, COMMIT);
}

static enum outcome commit(struct state *state, struct thread *thread)
{
    cas_word(state, booked_slot(thread), thread->word, thread->seen.delta);
    memset(&thread->word, 0, sizeof thread->word);
    memset(&thread->seen, 0, sizeof thread->seen);
    switch (thread->mode) {
    case MODE_RESERVE:
        return planted_fault == FAULT_NO_SECOND_LIMIT ? GRANTED : go(thread, LIMIT_AGAIN);
    case MODE_UNDO:
        thread->may_be_granted = false;
        return planted_fault == FAULT_UNDO_REFUSES ? REFUSED : restart(thread, MODE_RESERVE);
    case MODE_RELEASE:
        return ENDED;
    case MODE_JOIN:
        return go(thread, JOIN_BYTES);
    default:
        return reaped(thread);
    }
}

static enum outcome claim_next(struct thread *thread)
{
    thread->other++;
    return thread->other < scenario->slots ? go(thread, CLAIM_LOCK) : ENDED;
}

static enum outcome step_claim(struct state *state, struct thread *thread, uint8_t which)
{
    struct model_slot *slot = &state->slots[thread->other];
    uint8_t holder = (uint8_t)(1 << scenario->process[which]);
    switch (thread->step) {
    case CLAIM_LOCK:
        if (slot->claim != 0)
            return claim_next(thread);
        slot->claim = holder;
        slot->is_claiming = true;
        if (planted_fault == FAULT_LIFE_FIRST)
            slot->life |= holder;
        return go(thread, CLAIM_LOOK);
    case CLAIM_LOOK:
        if ((slot->life & ~holder) == 0 || planted_fault == FAULT_NO_LOOK)
            return go(thread, CLAIM_GEN);
        model_unlock(slot, scenario->process[which]);
        return claim_next(thread);
    case CLAIM_GEN:
        thread->gen = slot->gen;
        thread->mode = MODE_CLEAN;
        return go(thread, slot->gen % 2 == 1 ? LOAD_TOTAL : CLAIM_LIFE);
    case CLAIM_EVEN:
        slot->gen = thread->gen + 1;
        return go(thread, CLAIM_LIFE);
    case CLAIM_LIFE:
        slot->life |= holder;
        slot->is_piece = false;
        thread->gen = 0;
        return go(thread, CLAIM_HI_SLOT);
    case CLAIM_HI_SLOT:
        thread->hi_slot = state->hi_slot;
        return go(thread, thread->hi_slot <= thread->other ? CLAIM_HI_SLOT_CAS : CLAIM_ODD);
    case CLAIM_HI_SLOT_CAS:
        if (state->hi_slot != thread->hi_slot)
            return go(thread, CLAIM_HI_SLOT);
        state->hi_slot = thread->other + 1;
        return go(thread, CLAIM_ODD);
    default: /* CLAIM_ODD */
        slot->gen += slot->gen % 2 == 0 ? 1 : 2;
        thread->slot = thread->other;
        return ENDED;
    }
}

static enum outcome step_proof(struct state *state, struct thread *thread)
{
    const struct model_slot *slot = &state->slots[thread->other];
    uint8_t other = thread->other;
    switch (thread->step) {
    case NOTE_HI_SLOT:
        thread->hi_slot = state->hi_slot;
        return next_slot(thread, 0, NOTE_GEN, PROOF_LIMIT);
    case NOTE_GEN:
        thread->notes[other].gen = slot->gen;
        return go(thread, NOTE_COUNT);
    case NOTE_COUNT:
        thread->notes[other].count = slot->word.count;
        return next_slot(thread, other + 1, NOTE_GEN, PROOF_LIMIT);
    case PROOF_LIMIT:
        thread->limit = state->limit;
        return go(thread, PROOF_TOTAL);
    case PROOF_TOTAL:
        thread->seen = state->total;
        return go(thread, PROOF_LIMIT_AGAIN);
    case PROOF_LIMIT_AGAIN:
        if (state->limit > thread->limit)
            thread->limit = state->limit;
        if (thread->seen.used + thread->bytes <= thread->limit)
            return restart(thread, MODE_RESERVE);
        return go(thread, SETTLE_WORD);
    case LOOK_GEN:
        if (slot->gen != thread->notes[other].gen)
            return restart(thread, MODE_RESERVE);
        return slot->gen % 2 == 0 ? slot_is_fine(thread) : go(thread, LOOK_WORD);
    case LOOK_WORD:
        if (slot->word.bytes == 0 &&
            (slot->word.count == thread->notes[other].count || planted_fault == FAULT_NO_COUNT))
            return slot_is_fine(thread);
        return go(thread, LOOK_HELD);
    case LOOK_HELD:
        if (slot->life != 0)
            return planted_fault == FAULT_NO_SECOND_GEN ? slot_is_fine(thread)
                                                        : go(thread, LOOK_GEN_AGAIN);
        thread->gen = thread->notes[other].gen;
        memset(thread->notes, 0, sizeof thread->notes);
        thread->hi_slot = 0;
        thread->mode = MODE_REAP;
        return go(thread, LOAD_TOTAL);
    case LOOK_GEN_AGAIN:
        if (slot->gen != thread->notes[other].gen)
            return restart(thread, MODE_RESERVE);
        return slot_is_fine(thread);
    default: /* LOOK_HI_SLOT */
        if (state->hi_slot != thread->hi_slot)
            return restart(thread, MODE_RESERVE);
        return REFUSED;
    }
}

enum outcome model_step(struct state *state, uint8_t which)
{
    struct thread *thread = &state->threads[which];
    switch (thread->step) {
    case LOAD_TOTAL:
        thread->seen = state->total;
        return planted_fault == FAULT_NO_HELP ? settled(thread) : go(thread, SETTLE_WORD);
    case SETTLE_WORD:
        thread->word = state->slots[thread->seen.slot].word;
        return is_uncommitted(state, thread->seen) ? go(thread, SETTLE_TOTAL) : settled(thread);
    case SETTLE_TOTAL:
        return is_equal(state->total, thread->seen) ? go(thread, SETTLE_CAS) : load_again(thread);
    case SETTLE_CAS:
        cas_word(state, thread->seen.slot, thread->word, thread->seen.delta);
        return settled(thread);
    case LIMIT:
        if (thread->mode == MODE_UNDO)
            return thread->seen.used <= state->limit ? GRANTED : go(thread, OWN_WORD);
        if (thread->seen.used + thread->bytes <= state->limit)
            return go(thread, OWN_WORD);
        restart(thread, MODE_REFUSE);
        return go(thread, NOTE_HI_SLOT);
    case OWN_WORD:
        thread->word = state->slots[booked_slot(thread)].word;
        return go(thread, CAS_TOTAL);
    case REAP_WORD:
        thread->word = state->slots[thread->other].word;
        if (thread->word.bytes == 0)
            return reaped(thread);
        return go(thread, planted_fault == FAULT_REAP_ANY_GEN ? CAS_TOTAL : REAP_GEN);
    case REAP_GEN:
        if (state->slots[thread->other].gen != thread->gen)
            return reaped(thread);
        return go(thread, CAS_TOTAL);
    case CAS_TOTAL:
        return cas_total(state, thread);
    case COMMIT:
        return commit(state, thread);
    case LIMIT_AGAIN:
        if (thread->limit <= state->limit)
            return GRANTED;
        return restart(thread, MODE_UNDO);
    default:
        if (thread->step >= JOIN_FIND)
            return model_step_piece(state, thread, which);
        return thread->step >= CLAIM_LOCK ? step_claim(state, thread, which)
                                          : step_proof(state, thread);
    }
}
