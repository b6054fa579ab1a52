#include "timeline.h"

#define PREDICTION_HORIZON_NS 1000000000ull
#define PREDICTION_STEPS 20000
#define WHOLE_PERCENT 100

/* A client that has, or will have before the end of this advance, something to do. */
struct worker {
    struct sim_client *client;
    struct sim_queue *queue;
    uint32_t slot;
    uint64_t tail;
    const struct sim_operation *operation; /* at the head, if submitted by now */
};

struct workers {
    struct worker all[SIM_PROCESS_SLOTS];
    uint32_t count;
};

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static void find_workers(struct sim_timeline *timeline, struct workers *workers)
{
    struct sim_state *state = timeline->state;
    workers->count = 0;
    for (uint32_t slot = 0; slot < state->client_limit && slot < SIM_PROCESS_SLOTS; slot++) {
        struct sim_client *client = &state->clients[slot];
        if (!(client->flags & SIM_CLIENT_ATTACHED))
            continue;
        struct sim_queue *queue = sim_layout_queue(timeline->device, slot);
        uint64_t tail = __atomic_load_n(&queue->tail, __ATOMIC_ACQUIRE);
        if (tail <= client->head)
            continue;
        workers->all[workers->count++] =
            (struct worker){.client = client, .queue = queue, .slot = slot, .tail = tail};
    }
}

static uint32_t entity_of(const struct worker *worker)
{
    return worker->client->flags & SIM_CLIENT_MPS ? SIM_MPS_GROUP : worker->slot;
}

static bool needs_device(const struct worker *worker)
{
    return worker->operation && worker->operation->kind != SIM_OPERATION_TRANSFER;
}

/* Writes down when an operation was done, once: whoever computes it first is right, also for those
 * who lose the race to publish, so that a time never changes after it was read. */
static void stamp_operation(struct worker *worker, uint64_t sequence, uint64_t at_ns)
{
    struct sim_operation *operation = &worker->queue->operations[sequence % SIM_QUEUE_DEPTH];
    uint64_t tag = (sequence / SIM_QUEUE_DEPTH & 0xff) << SIM_STAMP_TAG_SHIFT;
    uint64_t unset = tag;
    __atomic_compare_exchange_n(&operation->stamp, &unset, tag | at_ns, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

static void complete_operation(struct sim_timeline *timeline, struct worker *worker)
{
    struct sim_client *client = worker->client;
    if (timeline->stamping)
        stamp_operation(worker, client->head, timeline->state->clock_ns);
    client->launches += worker->operation->kernels;
    client->head++;
    client->remaining_ns = 0;
    client->flags &= ~SIM_CLIENT_STARTED;
    worker->operation = NULL;
}

static void roll_window(struct sim_state *state)
{
    uint64_t passed = state->clock_ns - state->window_started_ns;
    if (passed < SIM_WINDOW_NS)
        return;
    bool skipped = passed >= 2 * SIM_WINDOW_NS; /* only an idle device jumps that far */
    state->last_window_busy_ns = skipped ? 0 : state->window_busy_ns;
    state->window_busy_ns = 0;
    state->window_started_ns = state->clock_ns - passed % SIM_WINDOW_NS;
    for (uint32_t slot = 0; slot < state->client_limit; slot++) {
        struct sim_client *client = &state->clients[slot];
        client->last_window_busy_ns = skipped ? 0 : client->window_busy_ns;
        client->window_busy_ns = 0;
    }
}

/* Looks at every head: loads those that begin now, and returns when the next one is submitted. */
static uint64_t load_heads(struct workers *workers, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->all[i];
        struct sim_client *client = worker->client;
        worker->operation = NULL;
        if (client->head >= worker->tail)
            continue;
        const struct sim_operation *head =
            &worker->queue->operations[client->head % SIM_QUEUE_DEPTH];
        if (head->submitted_ns > now_ns) {
            next_ns = least(next_ns, head->submitted_ns);
            continue;
        }
        if (!(client->flags & SIM_CLIENT_STARTED)) {
            client->flags |= SIM_CLIENT_STARTED;
            client->remaining_ns = head->cost_ns;
        }
        worker->operation = head;
    }
    return next_ns;
}

/* Returns whose turn comes after `current` among those with work, going round by slot; the MPS
 * group stands behind the last slot. */
static uint32_t next_entity(const struct workers *workers, uint32_t current)
{
    uint32_t first = SIM_NOBODY, after = SIM_NOBODY;
    for (uint32_t i = 0; i < workers->count; i++) {
        if (!needs_device(&workers->all[i]))
            continue;
        uint32_t entity = entity_of(&workers->all[i]);
        if (first == SIM_NOBODY || entity < first)
            first = entity;
        if (current != SIM_NOBODY && entity > current && (after == SIM_NOBODY || entity < after))
            after = entity;
    }
    return after != SIM_NOBODY ? after : first;
}

/* Decides who has the device at state->clock_ns; returns when that must be decided again. */
static uint64_t choose_entity(struct sim_state *state, const struct workers *workers)
{
    bool current_works = false, other_works = false;
    for (uint32_t i = 0; i < workers->count; i++) {
        if (!needs_device(&workers->all[i]))
            continue;
        if (entity_of(&workers->all[i]) == state->current)
            current_works = true;
        else
            other_works = true;
    }
    if (!other_works)
        return UINT64_MAX;
    if (current_works) {
        /* Alone, a process goes on from slice to slice; a newcomer waits for the end of the one it
         * finds. While two have work every step ends with the slice, so a slice that was passed
         * by was one of those. */
        if (state->clock_ns > state->slice_started_ns + SIM_SLICE_NS)
            state->slice_started_ns +=
                (state->clock_ns - state->slice_started_ns) / SIM_SLICE_NS * SIM_SLICE_NS;
        if (state->clock_ns < state->slice_started_ns + SIM_SLICE_NS)
            return state->slice_started_ns + SIM_SLICE_NS;
    }
    state->current = next_entity(workers, state->current);
    state->switch_left_ns = current_works ? SIM_SWITCH_NS : 0;
    state->slice_started_ns = state->clock_ns + state->switch_left_ns;
    return state->slice_started_ns + SIM_SLICE_NS;
}

/* One step: up to the next moment at which anything changes, or `until_ns`. */
static void step_timeline(struct sim_timeline *timeline, struct workers *workers, uint64_t until_ns)
{
    struct sim_state *state = timeline->state;
    uint64_t next_ns = least(until_ns, load_heads(workers, state->clock_ns));
    next_ns = least(next_ns, choose_entity(state, workers));
    bool switching = state->switch_left_ns > 0;
    uint32_t percent_sum = 0;
    bool working = switching;
    for (uint32_t i = 0; i < workers->count; i++)
        if (needs_device(&workers->all[i])) {
            working = true;
            if (entity_of(&workers->all[i]) == SIM_MPS_GROUP)
                percent_sum += workers->all[i].client->percentage;
        }
    uint32_t whole = percent_sum > WHOLE_PERCENT ? percent_sum : WHOLE_PERCENT;

    /* how fast each one goes, and when the first is done */
    uint32_t rates[SIM_PROCESS_SLOTS];
    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->all[i];
        rates[i] = 0;
        if (!worker->operation)
            continue;
        if (!needs_device(worker))
            rates[i] = whole;
        else if (!switching && entity_of(worker) == state->current)
            rates[i] = state->current == SIM_MPS_GROUP ? worker->client->percentage : whole;
        if (rates[i])
            next_ns = least(next_ns,
                            state->clock_ns +
                                (worker->client->remaining_ns * whole + rates[i] - 1) / rates[i]);
    }
    if (switching)
        next_ns = least(next_ns, state->clock_ns + state->switch_left_ns);
    if (working) /* a jump over several windows is for idle devices */
        next_ns = least(next_ns, state->window_started_ns + SIM_WINDOW_NS);
    if (next_ns < state->clock_ns)
        next_ns = state->clock_ns;

    uint64_t passed_ns = next_ns - state->clock_ns;
    bool ran = false;
    state->clock_ns = next_ns;
    if (switching)
        state->switch_left_ns -= passed_ns;
    for (uint32_t i = 0; i < workers->count; i++) {
        struct worker *worker = &workers->all[i];
        if (!rates[i])
            continue;
        struct sim_client *client = worker->client;
        uint64_t done_ns = least(passed_ns * rates[i] / whole, client->remaining_ns);
        client->remaining_ns -= done_ns;
        if (needs_device(worker)) {
            client->busy_ns += done_ns;
            client->window_busy_ns += done_ns;
            ran = true;
        }
        if (client->remaining_ns == 0)
            complete_operation(timeline, worker);
    }
    if (ran) {
        state->busy_ns += passed_ns;
        state->window_busy_ns += passed_ns;
    }
    roll_window(state);
}

void sim_timeline_advance(struct sim_timeline *timeline, uint64_t until_ns)
{
    struct workers workers;
    find_workers(timeline, &workers);
    if (workers.count == 0) {
        if (until_ns > timeline->state->clock_ns) {
            timeline->state->clock_ns = until_ns;
            roll_window(timeline->state);
        }
        return;
    }
    while (timeline->state->clock_ns < until_ns)
        step_timeline(timeline, &workers, until_ns);
}

uint64_t sim_timeline_predict(struct sim_timeline *timeline, uint32_t slot, uint64_t sequence)
{
    struct workers workers;
    struct sim_state *state = timeline->state;
    uint64_t until_ns = state->clock_ns + PREDICTION_HORIZON_NS;
    find_workers(timeline, &workers);
    for (int step = 0; step < PREDICTION_STEPS && state->clock_ns < until_ns; step++) {
        if (state->clients[slot].head > sequence)
            break;
        step_timeline(timeline, &workers, until_ns);
    }
    return state->clock_ns;
}
