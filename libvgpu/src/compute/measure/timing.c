#include "compute/measure/timing.h"

#include <stdlib.h>
#include <string.h>

#include "driver/capture.h"
#include "driver/real.h"
#include "slice/devices.h"
#include "slice/waiting.h"

#define MOST_IDLE_PART 2 /* of what a batch took; else the host was slow for other reasons */
/* Of the time in which the host makes a launch: then the GPU begins with it. On an H100 a launch took
 * 4.4 us, and events around a lone kernel told 3.9 us more than it and a pair of events take. */
#define IDLE_PERCENT 88
#define SLOW_FACTOR 2 /* times what the host takes at least: then it was slow */
#define PAIR_TRIES 8
#define MOST_ANCHOR_NS 20000 /* after which the GPU was not idle */
#define MOST_PAIR_PART 2     /* of what a batch took, by which it is cut for its own events */

static struct batch *at(struct timing *timing, uint32_t index)
{
    return &timing->ring[(timing->first + index) % TIMING_BATCHES];
}

struct batch *timing_open_batch(struct timing *timing)
{
    return timing->is_open ? at(timing, timing->count - 1) : NULL;
}

struct batch *timing_oldest(struct timing *timing)
{
    return timing->count > (timing->is_open ? 1u : 0u) ? at(timing, 0) : NULL;
}

struct batch *timing_last_closed(struct timing *timing)
{
    uint32_t closed = timing->count - (timing->is_open ? 1u : 0u);
    return closed > 0 ? at(timing, closed - 1) : NULL;
}

bool timing_holds(const struct timing *timing, uint64_t key)
{
    for (uint32_t i = 0; i < timing->count; i++) {
        const struct batch *batch = &timing->ring[(timing->first + i) % TIMING_BATCHES];
        for (uint32_t kind = 0; kind < batch->kind_count; kind++)
            if (batch->kinds[kind].key == key && batch->kinds[kind].launches > 0)
                return true;
    }
    return false;
}

/* A launch then returns when its work is done: the time it took is not what it took to begin. */
static bool launches_block(void)
{
    static int answer; /* atomic; 0: not asked yet */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == 0) {
        const char *value = getenv("CUDA_LAUNCH_BLOCKING");
        known = value != NULL && strcmp(value, "0") != 0 ? 1 : -1;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known > 0;
}

/* Whether the host took no longer than usual for an event, so that the GPU came to it by then. */
static bool is_prompt(struct timing *timing, int64_t record_ns)
{
    if (timing->least_record_ns == 0 || record_ns < timing->least_record_ns)
        timing->least_record_ns = record_ns;
    return record_ns <= SLOW_FACTOR * timing->least_record_ns;
}

/* On an idle stream, until it has an answer. */
static void measure_pair(struct timing *timing, const struct batch *batch, CUstream stream)
{
    if (timing->pair_ns != 0 || timing->pair_tries >= PAIR_TRIES)
        return;
    timing->pair_tries++;
    timing->pair_ns = batch_pair_ns(batch, stream);
}

bool timing_open(struct timing *timing, CUstream stream, int64_t now_ns)
{
    if (timing->count == TIMING_BATCHES || timing->is_open)
        return false;
    struct batch *batch = at(timing, timing->count);
    CUcontext context = devices_context_of(stream);
    __atomic_store_n(&batch->is_cut, false, __ATOMIC_RELEASE);
    struct batch_visit visit = batch_visit(context);
    bool done = batch_prepare(batch, context);
    done = done && !batch_is_captured(stream);
    /* Idle also of what nobody measures, such as a transfer: the start would come behind it. */
    bool is_idle = done && timing->count == 0 && !launches_block() &&
                   real.cuStreamQuery(stream) == CUDA_SUCCESS;
    if (is_idle)
        measure_pair(timing, batch, stream);
    int64_t asked_ns = is_idle ? waiting_now_ns() : 0;
    if (done && real.cuEventRecord(batch->start, stream) != CUDA_SUCCESS) {
        batch->context = NULL; /* of a context that ended, or a stream of another one */
        done = false;
    }
    batch->start_ns = waiting_now_ns();
    int64_t recorded_ns = is_idle && done ? batch->start_ns : 0;
    batch_leave(visit);
    if (!done)
        return false;
    batch_begin(batch, stream, now_ns);
    batch->id = ++timing->last_id;
    batch->recorded_ns = recorded_ns;
    batch->is_behind = !is_idle;
    batch->is_anchor = is_idle && is_prompt(timing, batch->start_ns - asked_ns);
    timing->count++;
    timing->is_open = true;
    return true;
}

/* Records an event that the GPU comes to at once, and waits for it. */
static void take_anchor(struct timing *timing, struct batch *batch, CUstream stream)
{
    int64_t asked_ns = waiting_now_ns();
    if (real.cuEventRecord(batch->start, stream) != CUDA_SUCCESS)
        return;
    int64_t start_ns = waiting_now_ns();
    while (real.cuEventQuery(batch->start) == CUDA_ERROR_NOT_READY)
        if (waiting_now_ns() > start_ns + MOST_ANCHOR_NS)
            return;
    if (is_prompt(timing, start_ns - asked_ns))
        gpu_clock_set(&timing->clock, batch->context, &batch->start, start_ns);
}

void timing_calibrate(struct timing *timing, CUstream stream)
{
    CUcontext context = devices_context_of(stream);
    if (context == NULL || context != timing->uncertain || timing->count > 0 || launches_block())
        return;
    struct batch *batch = at(timing, 0);
    struct batch_visit visit = batch_visit(context);
    if (batch_prepare(batch, context) && !batch_is_captured(stream) &&
        real.cuStreamQuery(stream) == CUDA_SUCCESS) {
        measure_pair(timing, batch, stream);
        take_anchor(timing, batch, stream);
        __atomic_store_n(&timing->uncertain, NULL, __ATOMIC_RELAXED);
    }
    batch_leave(visit);
}

bool timing_join(struct timing *timing, CUstream stream)
{
    struct batch *batch = timing_open_batch(timing);
    if (batch == NULL || !batch_can_join(batch, stream))
        return false;
    struct batch_visit visit = batch_visit(batch->context);
    bool done = !batch_is_captured(stream) && batch_prepare_end(batch, batch->stream_count);
    batch_leave(visit);
    if (done)
        batch->streams[batch->stream_count++] = stream;
    return done;
}

void timing_began(struct timing *timing, int64_t now_ns)
{
    struct batch *open = timing_open_batch(timing);
    open->idle_ns = (now_ns - open->recorded_ns) * IDLE_PERCENT / 100;
    open->recorded_ns = 0;
    if (timing->least_idle_ns == 0 || open->idle_ns < timing->least_idle_ns)
        timing->least_idle_ns = open->idle_ns;
    open->opened_ns = now_ns;
}

bool timing_was_slow(const struct timing *timing, const struct batch *batch)
{
    return batch->idle_ns > SLOW_FACTOR * timing->least_idle_ns;
}

void timing_cut(struct timing *timing)
{
    for (int i = 0; i < TIMING_BATCHES; i++)
        __atomic_store_n(&timing->ring[i].is_cut, true, __ATOMIC_RELEASE);
}

void timing_drop_open(struct timing *timing)
{
    if (timing->is_open) {
        timing->is_open = false;
        timing->count--;
    }
}

bool timing_close(struct timing *timing, int64_t now_ns)
{
    struct batch *batch = timing_open_batch(timing);
    if (batch == NULL)
        return false;
    struct batch_visit visit = batch_visit(batch->context);
    /* Another thread's default stream cannot be named from here. */
    bool done = batch->thread == batch_thread_of(batch->streams[0]) && batch_record_ends(batch);
    batch_leave(visit);
    if (!done) {
        timing_drop_open(timing);
        return false;
    }
    timing->is_open = false;
    int64_t begins = now_ns;
    if (timing->count > 1 && at(timing, timing->count - 2)->predicted_end_ns > begins)
        begins = at(timing, timing->count - 2)->predicted_end_ns;
    batch->predicted_end_ns = begins + batch->charged_ns;
    return true;
}

void timing_delay(struct timing *timing, int64_t from_ns)
{
    for (uint32_t i = 0; i + (timing->is_open ? 1u : 0u) < timing->count; i++) {
        struct batch *batch = at(timing, i);
        if (batch->predicted_end_ns < from_ns + batch->charged_ns)
            batch->predicted_end_ns = from_ns + batch->charged_ns;
        from_ns = batch->predicted_end_ns;
    }
}

/* How long the GPU waited for the first launch of a batch whose start came behind other work: it may
 * have been through with that while the launch was on its way. Told by the host's clock, against which
 * a start on an idle GPU has set the GPU's. */
static int64_t waited_ns(struct timing *timing, const struct batch *batch)
{
    int64_t passed_ns = 0;
    if (!batch->is_behind || batch->launched_ns == 0)
        return 0;
    bool is_told = gpu_clock_at(&timing->clock, batch->context, batch->start, &passed_ns);
    if (!is_told || timing->pair_ns == 0)
        __atomic_store_n(&timing->uncertain, batch->context, __ATOMIC_RELAXED);
    if (!is_told)
        return 0;
    int64_t way_ns = (batch->launched_ns - batch->start_ns) * IDLE_PERCENT / 100;
    int64_t waited_ns = batch->start_ns + way_ns - passed_ns;
    return waited_ns < 0 ? 0 : waited_ns < way_ns ? waited_ns : way_ns;
}

/* Notes in the other batches what of their time is counted by now: with this one, `gpu_ns` up to an end of
 * it. One that began earlier has all of that in its time; of one that began meanwhile all is counted up to
 * there. They may end in any order. */
static void note_counted(struct timing *timing, struct batch *counted, uint32_t last,
                         int64_t gpu_ns)
{
    for (uint32_t i = 0; i < timing->count; i++) {
        struct batch *other = at(timing, i);
        int64_t since_ns = 0, ahead_ns = 0;
        if (other == counted || other->context != counted->context ||
            !batch_is_later(other->start, counted->ends[last], &since_ns))
            continue; /* the GPU has not come to that start */
        if (!batch_is_later(counted->start, other->start, &ahead_ns))
            other->counted_ns += gpu_ns;
        else if (other->counted_ns < since_ns)
            other->counted_ns = since_ns;
        other->is_beside |= counted->streams[last] != other->streams[0];
        other->is_shared = counted->is_shared = true;
    }
}

/* Time from the batch's start to its last end, less what has been counted with others. */
static bool measure(struct timing *timing, struct batch *batch, int64_t *gpu_ns)
{
    uint32_t last = 0;
    float own_ms = batch_last_end_ms(batch, batch->start, &last);
    if (own_ms < 0)
        return false;
    int64_t own_ns = (int64_t)(own_ms * BATCH_NS_PER_MS);
    bool is_covered = batch->counted_ns > 0;
    *gpu_ns = own_ns > batch->counted_ns ? own_ns - batch->counted_ns : 0;
    note_counted(timing, batch, last, *gpu_ns);
    if (is_covered)
        batch->idle_ns = 0; /* it was not, on another stream */
    else if (batch->stream_count == 1)
        batch->idle_ns += waited_ns(timing, batch);
    if (batch->is_anchor)
        gpu_clock_set(&timing->clock, batch->context, &batch->start, batch->start_ns);
    /* Next to work on another stream the events cost nothing. */
    if (!batch->is_beside)
        *gpu_ns -=
            timing->pair_ns < *gpu_ns / MOST_PAIR_PART ? timing->pair_ns : *gpu_ns / MOST_PAIR_PART;
    if (batch->idle_ns > *gpu_ns / MOST_IDLE_PART &&
        (timing_was_slow(timing, batch) || batch->idle_ns > *gpu_ns))
        batch->idle_ns = *gpu_ns / MOST_IDLE_PART;
    return true;
}

/* Makes the first batch that the GPU is through with the oldest one: a long kernel on one stream
 * must not hide what has ended on others. Returns what the driver said of it. */
static CUresult bring_forward(struct timing *timing)
{
    uint32_t closed = timing->count - (timing->is_open ? 1u : 0u);
    CUstream blocked = at(timing, 0)->streams[0];
    for (uint32_t i = 0; i < closed; i++) {
        if (i > 0 && at(timing, i)->streams[0] == blocked)
            continue; /* behind one that still runs */
        CUresult result = batch_ask(at(timing, i));
        if (result == CUDA_ERROR_NOT_READY) {
            blocked = at(timing, i)->streams[0];
            continue;
        }
        struct batch found = *at(timing, i);
        for (uint32_t j = i; j > 0; j--)
            *at(timing, j) = *at(timing, j - 1);
        *at(timing, 0) = found;
        return result;
    }
    return CUDA_ERROR_NOT_READY;
}

int timing_harvest(struct timing *timing, struct batch *batch, int64_t *gpu_ns)
{
    struct batch *oldest = timing_oldest(timing);
    if (oldest == NULL)
        return 0;
    struct batch_visit visit = batch_visit(oldest->context);
    CUresult result = bring_forward(timing);
    oldest = timing_oldest(timing);
    bool measured = result == CUDA_SUCCESS && measure(timing, oldest, gpu_ns);
    batch_leave(visit);
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    *batch = *oldest;
    timing->first = (timing->first + 1) % TIMING_BATCHES;
    timing->count--;
    return measured ? 1 : -1;
}

bool timing_take_of_context(struct timing *timing, CUcontext context, struct batch *batch)
{
    for (uint32_t i = 0; i < timing->count; i++) {
        if (at(timing, i)->context != context)
            continue;
        *batch = *at(timing, i);
        if (i == timing->count - 1)
            timing->is_open = false;
        for (uint32_t j = i; j + 1 < timing->count; j++)
            *at(timing, j) = *at(timing, j + 1);
        *at(timing, timing->count - 1) = *batch; /* its events stay with the free place */
        timing->count--;
        return true;
    }
    return false;
}

void timing_forget_context(struct timing *timing, CUcontext context)
{
    for (int i = 0; i < TIMING_BATCHES; i++)
        if (timing->ring[i].context == context)
            timing->ring[i].context = NULL;
    if (timing->uncertain == context)
        __atomic_store_n(&timing->uncertain, NULL, __ATOMIC_RELAXED);
    gpu_clock_forget(&timing->clock, context);
}
