#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seen_set.h"

#define MOST_DEPTH (1u << 20)
#define MOST_STATES (64u << 20)
#define MOST_STEPS_ALONE 300
#define ALONE_EVERY 4 /* states */

/* What may happen next, in this order: a step of a thread, a crash of a process, a new limit,
 * the end of the children that keep slots. */
#define CRASHES MOST_THREADS
#define NEW_LIMIT (2 * MOST_THREADS)
#define HEIRS_END (NEW_LIMIT + 1)
#define ACTIONS (HEIRS_END + 1)

struct frame {
    struct state state;
    uint8_t next_action;
};

/* What the outcome of an operation must be measured by, once the state is reached. */
static void note_moments(struct state *state)
{
    int live = model_live_bytes(state);
    for (uint8_t which = 0; which < scenario->threads; which++) {
        struct thread *thread = &state->threads[which];
        if (thread->status != RUNNING || thread->bytes == 0)
            continue;
        if (model_is_tentative(thread))
            thread->may_be_granted |= state->total.used <= state->limit;
        else
            thread->may_be_refused |= live + thread->bytes > state->limit;
    }
}

static const char *wrong_outcome(const struct thread *thread, enum outcome outcome)
{
    if (outcome == GRANTED && !thread->may_be_granted)
        return "granted over the limit";
    if (outcome == REFUSED && !thread->may_be_refused)
        return "refused what fitted all the time";
    return NULL;
}

/* Lets one thread alone end its operation. Returns what is wrong. */
static const char *run_alone(struct state *state, uint8_t which, enum outcome *outcome)
{
    *outcome = GOES_ON;
    for (int steps = 0; *outcome == GOES_ON; steps++) {
        if (steps == MOST_STEPS_ALONE)
            return "a thread alone does not come to an end";
        *outcome = model_step(state, which);
        const char *wrong = model_wrong(state);
        if (wrong == NULL)
            wrong = wrong_outcome(&state->threads[which], *outcome);
        if (wrong != NULL)
            return wrong;
        note_moments(state);
    }
    return NULL;
}

/* Everybody else stands still where they are: this thread must end what it does, then get every
 * byte that the living do not hold, and not one more. */
static const char *wrong_alone(const struct state *from, uint8_t which)
{
    struct state state = *from;
    struct thread *thread = &state.threads[which];
    enum outcome outcome;
    if (thread->status == RUNNING) {
        const char *wrong = run_alone(&state, which, &outcome);
        if (wrong != NULL)
            return wrong;
    }
    if (thread->slot == NO_SLOT)
        return NULL;
    int rest = state.limit - model_locked_bytes(&state);
    for (int over = rest > 0 ? 0 : 1; over <= 1; over++) {
        model_begin(thread, RESERVE, (uint8_t)(over ? 1 : rest));
        note_moments(&state);
        const char *wrong = run_alone(&state, which, &outcome);
        if (wrong != NULL)
            return wrong;
        if (outcome != (over ? REFUSED : GRANTED))
            return over ? "alone, a thread got a byte over" : "alone, the last byte was refused";
    }
    return NULL;
}

static bool process_may_crash(const struct state *state, uint8_t process)
{
    for (uint8_t which = 0; which < scenario->threads; which++) {
        const struct thread *thread = &state->threads[which];
        if (scenario->process[which] != process || thread->status == DEAD)
            continue;
        if (thread->slot != NO_SLOT)
            return true;
        for (uint8_t slot = 0; slot < scenario->slots; slot++)
            if (state->slots[slot].claim & 1 << process)
                return true;
    }
    return false;
}

/* Does one action. False when it is not possible; *wrong is set where its outcome is. */
static bool act(struct state *state, uint8_t action, const char **wrong)
{
    if (action == HEIRS_END) {
        if (!model_end_heirs(state))
            return false;
    } else if (action == NEW_LIMIT) {
        if (state->limit_changed)
            return false;
        state->limit_changed = true;
        state->limit = scenario->limit_afterwards;
    } else if (action >= CRASHES) {
        uint8_t process = action - CRASHES;
        if (state->crashes_left == 0 || !process_may_crash(state, process))
            return false;
        state->crashes_left--;
        model_crash(state, process);
    } else {
        struct thread *thread = &state->threads[action];
        if (thread->status != RUNNING)
            return false;
        enum outcome outcome = model_step(state, action);
        *wrong = wrong_outcome(thread, outcome);
        if (outcome != GOES_ON)
            model_next_operation(thread, action);
    }
    note_moments(state);
    return true;
}

static const char *wrong_here(const struct state *state, uint64_t count)
{
    const char *wrong = model_wrong(state);
    for (uint8_t which = 0; which < scenario->threads && count % ALONE_EVERY == 0; which++)
        if (wrong == NULL && state->threads[which].status != DEAD)
            wrong = wrong_alone(state, which);
    return wrong;
}

static void tell(const struct frame *frames, uint32_t depth)
{
    for (uint32_t i = 0; i < depth; i++) {
        const struct state *state = &frames[i].state;
        uint8_t action = frames[i].next_action - 1;
        printf("total %u (slot %u, %+d) limit %u ", state->total.used, state->total.slot,
               state->total.delta, state->limit);
        for (uint8_t slot = 0; slot < scenario->slots; slot++)
            printf("| %u bytes %u ops gen %u%s ", state->slots[slot].word.bytes,
                   state->slots[slot].word.count, state->slots[slot].gen,
                   state->slots[slot].life ? " held" : "");
        if (action == HEIRS_END)
            printf("-> the children end\n");
        else if (action == NEW_LIMIT)
            printf("-> new limit\n");
        else if (action >= CRASHES)
            printf("-> process %u dies\n", action - CRASHES);
        else
            printf("-> thread %u: operation %u, step %u\n", action,
                   state->threads[action].operation, state->threads[action].step);
    }
}

struct search_result search_run(void)
{
    struct seen_set seen = {0};
    struct search_result result = {0};
    struct frame *frames = malloc(MOST_DEPTH * sizeof *frames);
    if (frames == NULL)
        return (struct search_result){.wrong = "no memory for the search"};
    uint32_t depth = 1;
    memset(&frames[0], 0, sizeof frames[0]);
    frames[0].state = model_start();
    note_moments(&frames[0].state);
    seen_set_add(&seen, &frames[0].state, sizeof frames[0].state);
    while (depth > 0 && result.wrong == NULL) {
        struct frame *top = &frames[depth - 1];
        if (top->next_action == ACTIONS) {
            depth--;
            continue;
        }
        if (depth == MOST_DEPTH || seen.count == MOST_STATES) {
            result.wrong = depth == MOST_DEPTH ? "the search goes too deep" : "too many states";
            break;
        }
        frames[depth].state = top->state;
        frames[depth].next_action = 0;
        if (!act(&frames[depth].state, top->next_action++, &result.wrong) ||
            !seen_set_add(&seen, &frames[depth].state, sizeof frames[depth].state))
            continue;
        depth++;
        if (result.wrong == NULL)
            result.wrong = wrong_here(&frames[depth - 1].state, seen.count);
    }
    if (result.wrong != NULL)
        tell(frames, depth - 1);
    result.states = seen.count;
    seen_set_free(&seen);
    free(frames);
    return result;
}
