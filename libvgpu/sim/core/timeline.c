#include "timeline.h"

#include "spread.h"

#define PREDICTION_HORIZON_NS 1000000000ull
#define PREDICTION_STEPS 20000
#define WHOLE_PERCENT 100
#define DRAM_STEP 1024
#define DRAM_WHOLE (WHOLE_PERCENT * DRAM_STEP)

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static void find_workers(struct sim_timeline *timeline)
{
    struct sim_state *state = timeline->state;
    struct sim_workers *workers = timeline->workers;
    workers->count = 0;
    for (uint32_t slot = 0; slot < state->client_limit && slot < SIM_PROCESS_SLOTS; slot++) {
        struct sim_client *client = &state->clients[slot];
        if ((client->flags & (SIM_CLIENT_ATTACHED | SIM_CLIENT_FAILED)) != SIM_CLIENT_ATTACHED)
            continue;
        for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
            struct sim_queue *queue = sim_layout_queue(timeline->device, slot, lane);
            if (!(client->lanes_open >> lane & 1))
                continue;
            uint64_t tail = __atomic_load_n(&queue->tail, __ATOMIC_ACQUIRE);
            if (tail > client->lanes[lane].head)
                workers->all[workers->count++] = (struct sim_worker){
                    .client = client, .queue = queue, .slot = slot, .lane = lane, .tail = tail};
        }
    }
}

static uint32_t entity_of(const struct sim_worker *worker)
{
    return worker->client->flags & SIM_CLIENT_MPS ? SIM_MPS_GROUP : worker->slot;
}

static const struct sim_calibration *calibration_of(const struct sim_timeline *timeline)
{
    return &timeline->device->identity.profile.calibration;
}

static bool needs_device(const struct sim_worker *worker)
{
    return worker->operation && (worker->operation->kind == SIM_OPERATION_KERNEL ||
                                 worker->operation->kind == SIM_OPERATION_MEMORY ||
                                 worker->operation->kind == SIM_OPERATION_SPIN);
}

/* Whether it goes on only while its process has its turn. */
static bool needs_turn(const struct sim_worker *worker)
{
    return needs_device(worker) ||
           (worker->operation && worker->operation->kind == SIM_OPERATION_EVENT &&
            worker->client->lanes[worker->lane].remaining_ns);
}

/* Returns the part of the device that a worker's operation fills, of SIM_PARTS. */
static uint32_t parts_of(const struct sim_worker *worker)
{
    uint32_t parts = worker->operation->parts;
    return parts && parts < SIM_PARTS ? parts : SIM_PARTS;
}

static bool transfers(const struct sim_worker *worker)
{
    return worker->operation && worker->operation->kind == SIM_OPERATION_TRANSFER;
}

/* Writes down when an operation was done, once: whoever computes it first is right, also for those
 * who lose the race to publish, so that a time never changes after it was read. */
static void stamp_operation(struct sim_worker *worker, uint64_t sequence, uint64_t at_ns)
{
    struct sim_operation *operation = &worker->queue->operations[sequence % SIM_QUEUE_DEPTH];
    uint64_t tag = (sequence / SIM_QUEUE_DEPTH & 0xff) << SIM_STAMP_TAG_SHIFT;
    uint64_t unset = tag;
    __atomic_compare_exchange_n(&operation->stamp, &unset, tag | at_ns, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

static void complete_operation(struct sim_timeline *timeline, struct sim_worker *worker)
{
    struct sim_client *client = worker->client;
    struct sim_lane *lane = &client->lanes[worker->lane];
    if (timeline->stamping)
        stamp_operation(worker, lane->head, timeline->state->clock_ns);
    client->launches += worker->operation->kernels;
    lane->head++;
    lane->remaining_ns = 0;
    client->started &= ~(1u << worker->lane);
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

static bool is_done(const struct sim_client *client, uint64_t place)
{
    return client->lanes[sim_place_lane(place) % SIM_LANES].head > sim_place_sequence(place);
}

/* Looks at every head: loads those that begin now, and returns when the next one can. What waits
 * for another operation is looked at again after each step, which ends with an operation. */
static uint64_t load_heads(struct sim_workers *workers, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < workers->count; i++) {
        struct sim_worker *worker = &workers->all[i];
        struct sim_client *client = worker->client;
        struct sim_lane *lane = &client->lanes[worker->lane];
        worker->operation = NULL;
        if (lane->head >= worker->tail)
            continue;
        const struct sim_operation *head = &worker->queue->operations[lane->head % SIM_QUEUE_DEPTH];
        uint64_t ready_ns = head->submitted_ns + head->latency_ns;
        if (head->kind == SIM_OPERATION_GATE) {
            uint64_t released_ns = __atomic_load_n(&head->released_ns, __ATOMIC_ACQUIRE);
            if (!released_ns)
                continue;
            ready_ns = released_ns > ready_ns ? released_ns : ready_ns;
        }
        if (ready_ns > now_ns) {
            next_ns = least(next_ns, ready_ns);
            continue;
        }
        if (head->after && !is_done(client, head->after))
            continue;
        if (!(client->started >> worker->lane & 1)) {
            client->started |= 1u << worker->lane;
            lane->remaining_ns = head->cost_ns - least(head->overlap_ns, now_ns - ready_ns);
        }
        worker->operation = head;
        worker->spins = false;
        if (head->kind == SIM_OPERATION_SPIN) {
            uint64_t released_ns = __atomic_load_n(&head->released_ns, __ATOMIC_ACQUIRE);
            worker->spins = !released_ns || released_ns > now_ns;
            if (released_ns > now_ns)
                next_ns = least(next_ns, released_ns);
        }
    }
    return next_ns;
}

/* Returns whose turn comes after `current` among those with work, going round by slot; the MPS
 * group stands behind the last slot. */
static uint32_t next_entity(const struct sim_workers *workers, uint32_t current)
{
    uint32_t first = SIM_NOBODY, after = SIM_NOBODY;
    for (uint32_t i = 0; i < workers->count; i++) {
        if (!needs_turn(&workers->all[i]))
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
static uint64_t choose_entity(struct sim_state *state, const struct sim_workers *workers,
                              const struct sim_calibration *calibration)
{
    bool current_works = false, other_works = false;
    uint64_t midst_parts = 0; /* of the GPU, with kernels whose state must be saved */
    for (uint32_t i = 0; i < workers->count; i++) {
        const struct sim_worker *worker = &workers->all[i];
        if (!needs_turn(worker))
            continue;
        if (entity_of(worker) == state->current) {
            current_works = true;
            if (needs_device(worker) &&
                (worker->spins ||
                 worker->client->lanes[worker->lane].remaining_ns < worker->operation->cost_ns))
                midst_parts = least(midst_parts + parts_of(worker), SIM_PARTS);
        } else {
            other_works = true;
        }
    }
    if (!other_works)
        return UINT64_MAX;
    if (current_works) {
        /* Alone, a process goes on from slice to slice; a newcomer waits for the end of the one it
         * finds. While two have work every step ends with the slice, so a slice that was passed
         * by was one of those. */
        uint64_t slice_ns = calibration->slice_ns;
        if (state->clock_ns > state->slice_started_ns + slice_ns)
            state->slice_started_ns +=
                (state->clock_ns - state->slice_started_ns) / slice_ns * slice_ns;
        if (state->clock_ns < state->slice_started_ns + slice_ns)
            return state->slice_started_ns + slice_ns;
    }
    bool first = state->current == SIM_NOBODY;
    state->current = next_entity(workers, state->current);
    uint64_t switch_ns = first            ? 0
                         : !current_works ? calibration->idle_switch_ns
                                          : calibration->switch_ns +
                                                calibration->preempt_ns * midst_parts / SIM_PARTS;
    state->switch_left_ns =
        sim_spread(calibration, SIM_SPREAD_SWITCH, switch_ns, state->switches++);
    state->slice_started_ns = state->clock_ns + state->switch_left_ns;
    return state->slice_started_ns + calibration->slice_ns;
}

/* The lanes of one process that run side by side: [first, end) of the worker list, those of the
 * highest priority. */
struct side_by_side {
    uint32_t first, end;
    int32_t priority;
    uint32_t parts;   /* the sum over them, which may be above SIM_PARTS */
    uint32_t granted; /* of it, what the process may have: up to its percentage */
};

static struct side_by_side find_side_by_side(const struct sim_workers *workers, uint32_t first,
                                             uint32_t end, uint32_t percentage)
{
    struct side_by_side found = {.first = first, .end = end, .priority = INT32_MAX};
    for (uint32_t i = first; i < end; i++) {
        if (!needs_device(&workers->all[i]))
            continue;
        int32_t priority = workers->all[i].operation->priority;
        if (priority < found.priority) {
            found.priority = priority;
            found.parts = 0;
        }
        if (priority == found.priority)
            found.parts += parts_of(&workers->all[i]);
    }
    uint32_t most = percentage * SIM_PARTS / WHOLE_PERCENT;
    found.granted = found.parts < most ? found.parts : most;
    return found;
}

/* Sets the rates of one process, where all that run at the time ask for `asked` of SIM_PARTS. */
static void run_side_by_side(struct sim_workers *workers, const struct side_by_side *process,
                             uint32_t asked)
{
    for (uint32_t i = process->first; i < process->end; i++) {
        struct sim_worker *worker = &workers->all[i];
        if (!needs_device(worker)) {
            worker->rate = needs_turn(worker);
        } else if (worker->operation->priority == process->priority) {
            worker->rate = (uint64_t)process->granted * SIM_PARTS;
            worker->whole = (uint64_t)process->parts * (asked > SIM_PARTS ? asked : SIM_PARTS);
            worker->parts = parts_of(worker);
            worker->share_out = process->parts < SIM_PARTS ? process->parts : SIM_PARTS;
        }
    }
}

/* Sets how fast each operation goes; returns whether anything keeps the device busy. */
static bool set_rates(struct sim_state *state, struct sim_workers *workers)
{
    bool switching = state->switch_left_ns > 0, working = switching;
    uint32_t transferring = 0, asked = 0, count = 0;
    struct side_by_side processes[SIM_PROCESS_SLOTS];
    for (uint32_t i = 0, end; i < workers->count; i = end) {
        for (end = i; end < workers->count && workers->all[end].slot == workers->all[i].slot;) {
            struct sim_worker *worker = &workers->all[end++];
            worker->rate = 0;
            worker->whole = 1;
            worker->slowdown = SIM_SLOW_ONE;
            transferring += transfers(worker);
            working |= needs_device(worker);
        }
        if (switching || entity_of(&workers->all[i]) != state->current)
            continue;
        bool mps = state->current == SIM_MPS_GROUP;
        processes[count] = find_side_by_side(
            workers, i, end, mps ? workers->all[i].client->percentage : WHOLE_PERCENT);
        if (!mps) /* its lanes alone ask for the device, for all that they can fill */
            processes[count].granted = processes[count].parts;
        asked += processes[count++].granted;
    }
    for (uint32_t i = 0; i < count; i++)
        run_side_by_side(workers, &processes[i], asked);
    for (uint32_t i = 0; i < workers->count; i++) {
        struct sim_worker *worker = &workers->all[i];
        if (!worker->operation || needs_turn(worker))
            continue;
        worker->rate = 1;
        worker->whole = transfers(worker) ? transferring : 1;
    }
    return working;
}

/* If what runs side by side needs more memory bandwidth than there is, slows down all that needs some. */
static void share_dram(struct sim_workers *workers)
{
    uint64_t needed = 0; /* of DRAM_WHOLE */
    for (uint32_t i = 0; i < workers->count; i++) {
        const struct sim_worker *worker = &workers->all[i];
        if (worker->rate && needs_device(worker))
            needed += worker->operation->dram_percent * (worker->rate * DRAM_STEP / worker->whole);
    }
    if (needed <= DRAM_WHOLE)
        return;
    for (uint32_t i = 0; i < workers->count; i++) {
        struct sim_worker *worker = &workers->all[i];
        if (worker->rate && needs_device(worker) && worker->operation->dram_percent)
            worker->slowdown = SIM_SLOW_ONE * needed / DRAM_WHOLE;
    }
}

/* Notes that a ramp of the clock begins, if something runs again after a long pause. */
static void begin_ramp(struct sim_state *state, const struct sim_workers *workers,
                       const struct sim_calibration *calibration)
{
    if (!calibration->spread_seed || !calibration->clock_ramp_ns ||
        state->clock_ns < state->ran_ns + calibration->clock_ramp_after_ns)
        return;
    for (uint32_t i = 0; i < workers->count; i++)
        if (workers->all[i].rate && needs_device(&workers->all[i]))
            state->ramp_until_ns = state->clock_ns + calibration->clock_ramp_ns;
}

/* Applies what makes the work of the device slower; returns when that changes by itself. */
static uint64_t slow_down(struct sim_state *state, struct sim_workers *workers,
                          const struct sim_calibration *calibration)
{
    share_dram(workers);
    begin_ramp(state, workers, calibration);
    bool ramps = state->clock_ns < state->ramp_until_ns;
    for (uint32_t i = 0; i < workers->count; i++) {
        struct sim_worker *worker = &workers->all[i];
        if (!worker->rate || !needs_device(worker))
            continue;
        if (ramps)
            worker->slowdown = worker->slowdown * WHOLE_PERCENT / calibration->clock_ramp_percent;
        if (worker->slowdown != SIM_SLOW_ONE) {
            worker->rate *= SIM_SLOW_ONE;
            worker->whole *= worker->slowdown;
        }
    }
    return ramps ? state->ramp_until_ns : UINT64_MAX;
}

/* Returns value * by / of, rounded up, without overflow. */
static uint64_t scale_up(uint64_t value, uint64_t by, uint64_t of)
{
    return by == of ? value : (uint64_t)(((unsigned __int128)value * by + of - 1) / of);
}

static uint64_t scale_down(uint64_t value, uint64_t by, uint64_t of)
{
    return by == of ? value : (uint64_t)((unsigned __int128)value * by / of);
}

/* One step: up to the next moment at which anything changes, or `until_ns`. */
static void step_timeline(struct sim_timeline *timeline, uint64_t until_ns)
{
    struct sim_state *state = timeline->state;
    struct sim_workers *workers = timeline->workers;
    const struct sim_calibration *calibration = calibration_of(timeline);
    uint64_t next_ns = least(until_ns, load_heads(workers, state->clock_ns));
    next_ns = least(next_ns, choose_entity(state, workers, calibration));
    bool working = set_rates(state, workers);
    next_ns = least(next_ns, slow_down(state, workers, calibration));
    for (uint32_t i = 0; i < workers->count; i++) {
        const struct sim_worker *worker = &workers->all[i];
        if (worker->rate && !worker->spins) {
            uint64_t remaining_ns = worker->client->lanes[worker->lane].remaining_ns;
            next_ns = least(next_ns,
                            state->clock_ns + scale_up(remaining_ns, worker->whole, worker->rate));
        }
    }
    if (state->switch_left_ns)
        next_ns = least(next_ns, state->clock_ns + state->switch_left_ns);
    if (working) /* a jump over several windows is for idle devices */
        next_ns = least(next_ns, state->window_started_ns + SIM_WINDOW_NS);
    if (next_ns < state->clock_ns)
        next_ns = state->clock_ns;

    uint64_t passed_ns = next_ns - state->clock_ns;
    bool ran = false;
    state->clock_ns = next_ns;
    state->switch_left_ns -= least(state->switch_left_ns, passed_ns);
    for (uint32_t i = 0; i < workers->count; i++) {
        struct sim_worker *worker = &workers->all[i];
        if (!worker->rate)
            continue;
        struct sim_client *client = worker->client;
        struct sim_lane *lane = &client->lanes[worker->lane];
        uint64_t done_ns = scale_down(passed_ns, worker->rate, worker->whole);
        if (!worker->spins) {
            done_ns = least(done_ns, lane->remaining_ns);
            lane->remaining_ns -= done_ns;
        }
        if (needs_device(worker)) {
            uint64_t had_ns = scale_down(done_ns, worker->slowdown, SIM_SLOW_ONE);
            had_ns = scale_down(had_ns, worker->parts, worker->share_out);
            client->busy_ns += had_ns;
            client->window_busy_ns += had_ns;
            ran = true;
        }
        if (lane->remaining_ns == 0)
            complete_operation(timeline, worker);
    }
    if (ran) {
        state->ran_ns = state->clock_ns;
        state->busy_ns += passed_ns;
        state->window_busy_ns += passed_ns;
    }
    roll_window(state);
}

void sim_timeline_advance(struct sim_timeline *timeline, uint64_t until_ns)
{
    find_workers(timeline);
    if (timeline->workers->count == 0) {
        if (until_ns > timeline->state->clock_ns) {
            timeline->state->clock_ns = until_ns;
            roll_window(timeline->state);
        }
        return;
    }
    while (timeline->state->clock_ns < until_ns)
        step_timeline(timeline, until_ns);
}

uint64_t sim_timeline_predict(struct sim_timeline *timeline, uint32_t slot, uint64_t place)
{
    struct sim_state *state = timeline->state;
    uint64_t until_ns = state->clock_ns + PREDICTION_HORIZON_NS;
    find_workers(timeline);
    for (int step = 0; step < PREDICTION_STEPS && state->clock_ns < until_ns; step++) {
        if (is_done(&state->clients[slot], place))
            break;
        step_timeline(timeline, until_ns);
    }
    return state->clock_ns;
}
