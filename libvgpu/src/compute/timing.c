#include "compute/timing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compute/capture.h"
#include "compute/waiting.h"
#include "hooks/real.h"
#include "slice/devices.h"

#define NS_PER_MS 1000000.0f
#define MOST_IDLE_PART 2 /* of what a batch took; else the host was slow for other reasons */

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

/* Around our own driver calls: in the batch's context, whatever the calling thread's is, and
 * leaving captures alone. */
struct visit {
    struct capture_pause pause;
    bool is_pushed;
};

static struct visit visit_begin(CUcontext context)
{
    struct visit visit = {capture_pause(), false};
    CUcontext current = NULL;
    real.cuCtxGetCurrent(&current);
    if (context != NULL && context != current)
        visit.is_pushed = real.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    return visit;
}

static void visit_end(struct visit visit)
{
    CUcontext left;
    if (visit.is_pushed)
        real.cuCtxPopCurrent_v2(&left);
    capture_resume(visit.pause);
}

/* Gives the batch events of `context`, the current one. They are kept for its place in the ring. */
static bool prepare_events(struct timing *timing, struct batch *batch, CUcontext context)
{
    if (context == NULL)
        return false;
    if (batch->context == context)
        return true;
    if (batch->context != NULL) { /* another context's: they can only be destroyed */
        if (timing->cover == batch->end)
            timing->cover = NULL;
        real.cuEventDestroy_v2(batch->start);
        real.cuEventDestroy_v2(batch->end);
        batch->context = NULL;
    }
    if (real.cuEventCreate(&batch->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return false;
    if (real.cuEventCreate(&batch->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        real.cuEventDestroy_v2(batch->start);
        return false;
    }
    batch->context = context;
    return true;
}

/* Asked of the driver for every event, whatever the hooks of capture have counted: one recorded in
 * a capture would become part of the program's graph. */
static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return real.cuStreamIsCapturing != NULL &&
           (real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
            status != CU_STREAM_CAPTURE_STATUS_NONE);
}

int timing_thread_of(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? (int)syscall(SYS_gettid) : 0;
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

void timing_count(struct batch *batch, uint64_t key, int64_t launches)
{
    batch->launches += (uint32_t)launches;
    for (uint32_t i = 0; i < batch->kind_count; i++)
        if (batch->kinds[i].key == key) {
            batch->kinds[i].launches += (uint32_t)launches;
            return;
        }
    if (batch->kind_count < BATCH_KINDS)
        batch->kinds[batch->kind_count++] = (struct batch_kind){key, (uint32_t)launches};
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

bool timing_open(struct timing *timing, CUstream stream, int64_t now_ns)
{
    if (timing->count == TIMING_BATCHES || timing->is_open)
        return false;
    struct batch *batch = at(timing, timing->count);
    CUcontext context = devices_context_of(stream);
    struct visit visit = visit_begin(context);
    bool done = prepare_events(timing, batch, context);
    /* The end that covers what was measured so far may be this place's own from the last round. */
    if (done && timing->cover == batch->end)
        timing->cover = NULL;
    done = done && !is_captured(stream);
    /* Idle also of what nobody measures, such as a transfer: the start would come behind it. */
    bool is_idle = done && timing->count == 0 && !launches_block() &&
                   real.cuStreamQuery(stream) == CUDA_SUCCESS;
    if (done && real.cuEventRecord(batch->start, stream) != CUDA_SUCCESS) {
        batch->context = NULL; /* of a context that ended, or a stream of another one */
        done = false;
    }
    int64_t recorded_ns = is_idle && done ? waiting_now_ns() : 0;
    visit_end(visit);
    if (!done)
        return false;
    batch->stream = stream;
    batch->charged_ns = batch->overdue_ns = 0;
    batch->thread = timing_thread_of(stream);
    batch->ends_behind = false;
    batch->launches = 0;
    batch->kind_count = 0;
    batch->opened_ns = now_ns;
    batch->recorded_ns = recorded_ns;
    batch->idle_ns = 0;
    timing->count++;
    timing->is_open = true;
    return true;
}

void timing_began(struct timing *timing, int64_t now_ns)
{
    struct batch *open = timing_open_batch(timing);
    open->idle_ns = now_ns - open->recorded_ns;
    open->recorded_ns = 0;
    open->opened_ns = now_ns;
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
    struct visit visit = visit_begin(batch->context);
    /* Another thread's default stream cannot be named from here. */
    bool done = batch->thread == timing_thread_of(batch->stream) && !is_captured(batch->stream) &&
                real.cuEventRecord(batch->end, batch->stream) == CUDA_SUCCESS;
    visit_end(visit);
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

/* Time from the later of the batch's start and the cover to its end. */
static bool measure(struct timing *timing, struct batch *batch, int64_t *gpu_ns)
{
    float own_ms = 0;
    float since_cover_ms = 0;
    if (real.cuEventElapsedTime(&own_ms, batch->start, batch->end) != CUDA_SUCCESS)
        return false;
    if (timing->cover != NULL && timing->cover_context == batch->context &&
        real.cuEventElapsedTime(&since_cover_ms, timing->cover, batch->end) == CUDA_SUCCESS &&
        since_cover_ms < own_ms) {
        own_ms = since_cover_ms;
        batch->idle_ns = 0; /* it was not, on another stream */
    }
    *gpu_ns = own_ms > 0 ? (int64_t)(own_ms * NS_PER_MS) : 0;
    if (batch->idle_ns > *gpu_ns / MOST_IDLE_PART)
        batch->idle_ns = *gpu_ns / MOST_IDLE_PART;
    if (own_ms > 0) {
        timing->cover = batch->end;
        timing->cover_context = batch->context;
    }
    return true;
}

/* Makes the first batch that the GPU is through with the oldest one: a long kernel on one stream
 * must not hide what has ended on others. Returns what the driver said of it. */
static CUresult bring_forward(struct timing *timing)
{
    uint32_t closed = timing->count - (timing->is_open ? 1u : 0u);
    CUstream blocked = at(timing, 0)->stream;
    for (uint32_t i = 0; i < closed; i++) {
        if (i > 0 && at(timing, i)->stream == blocked)
            continue; /* behind one that still runs */
        CUresult result = real.cuEventQuery(at(timing, i)->end);
        if (result == CUDA_ERROR_NOT_READY) {
            blocked = at(timing, i)->stream;
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
    struct visit visit = visit_begin(oldest->context);
    CUresult result = bring_forward(timing);
    oldest = timing_oldest(timing);
    bool measured = result == CUDA_SUCCESS && measure(timing, oldest, gpu_ns);
    visit_end(visit);
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
    if (timing->cover_context == context)
        timing->cover = NULL;
}
