/* What surrounds the steps: how a run begins, crashes, and what must hold in every state. */
#include <string.h>

#include "model.h"

void model_begin(struct thread *thread, enum operation_kind kind, uint8_t bytes)
{
    size_t kept = offsetof(struct thread, bytes);
    memset((unsigned char *)thread + kept, 0, sizeof *thread - kept);
    thread->status = RUNNING;
    thread->bytes = bytes;
    thread->mode = kind == RESERVE ? MODE_RESERVE : kind == RELEASE_ALL ? MODE_RELEASE : MODE_CLEAN;
    thread->step = kind == CLAIM ? CLAIM_LOCK : LOAD_TOTAL;
}

/* Begins the operation at `index`, or one after it when there is nothing to do for that one. */
static void begin_from(struct thread *thread, uint8_t which, uint8_t index)
{
    for (; index < MOST_OPERATIONS; index++) {
        const struct operation *operation = &scenario->operations[which][index];
        bool idle = operation->kind == NOTHING ||
                    (operation->kind == RELEASE_ALL && thread->held == 0) ||
                    (operation->kind != CLAIM && thread->slot == NO_SLOT);
        if (idle)
            continue;
        model_begin(thread, operation->kind, operation->bytes);
        thread->operation = index;
        return;
    }
    model_begin(thread, NOTHING, 0);
    thread->mode = thread->step = 0;
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
            uint8_t holder = scenario->process[which] + 1;
            state.slots[slot] = (struct model_slot){.gen = 1, .claim = holder, .life = holder};
            state.hi_slot = state.hi_slot > slot ? state.hi_slot : slot + 1;
        }
        begin_from(thread, which, 0);
    }
    for (uint8_t which = scenario->threads; which < MOST_THREADS; which++)
        state.threads[which].status = DEAD;
    return state;
}

void model_crash(struct state *state, uint8_t process)
{
    for (uint8_t which = 0; which < scenario->threads; which++)
        if (scenario->process[which] == process) {
            memset(&state->threads[which], 0, sizeof state->threads[which]);
            state->threads[which].status = DEAD;
        }
    for (uint8_t slot = 0; slot < scenario->slots; slot++) {
        if (state->slots[slot].claim == process + 1)
            state->slots[slot].claim = 0;
        if (state->slots[slot].life == process + 1)
            state->slots[slot].life = 0;
    }
}

int model_slot_bytes(const struct state *state, uint8_t slot)
{
    struct word word = state->slots[slot].word;
    bool in_flight =
        state->total.slot == slot && (uint8_t)(word.count + 1) == state->total.sequence;
    return word.bytes + (in_flight ? state->total.delta : 0);
}

int model_live_bytes(const struct state *state)
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
    for (uint8_t which = 0; which < scenario->threads; which++)
        if (state->threads[which].status != DEAD && state->threads[which].slot != NO_SLOT)
            held[state->threads[which].slot] += state->threads[which].held;
    for (uint8_t index = 0; index < scenario->slots; index++) {
        const struct model_slot *slot = &state->slots[index];
        int bytes = model_slot_bytes(state, index);
        sum += bytes;
        if (bytes < 0 || slot->word.bytes > 127)
            return "a slot holds less than nothing";
        if (slot->gen % 2 == 0 && bytes != 0)
            return "a slot that is free and clean holds bytes";
        if (slot->gen % 2 == 1 && slot->life != 0 && bytes != held[index])
            return "a slot does not hold what its user was granted";
    }
    if (state->total.used != sum)
        return "the total is not the sum of the slots";
    int most =
        scenario->limit > scenario->limit_afterwards ? scenario->limit : scenario->limit_afterwards;
    return state->total.used > most ? "the total exceeds every limit there was" : NULL;
}
