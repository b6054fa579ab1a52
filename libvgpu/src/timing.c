#include "timing.h"

#include <string.h>

#include "capture.h"
#include "real.h"

#define NS_PER_MS 1000000.0f

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

/* Gives the batch events of the current context. They are kept for its place in the ring. */
static bool prepare_events(struct timing *timing, struct batch *batch)
{
    CUcontext context = NULL;
    if (real.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL)
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

bool timing_open(struct timing *timing, CUstream stream, int64_t now_ns)
{
    if (timing->count == TIMING_BATCHES || timing->is_open)
        return false;
    struct batch *batch = at(timing, timing->count);
    struct capture_pause pause = capture_pause();
    bool done = prepare_events(timing, batch);
    /* The end that covers what was measured so far may be this place's own from the last round. */
    if (done && timing->cover == batch->end)
        timing->cover = NULL;
    if (done && real.cuEventRecord(batch->start, stream) != CUDA_SUCCESS) {
        batch->context = NULL; /* of a context that ended, or a stream of another one */
        done = false;
    }
    capture_resume(pause);
    if (!done)
        return false;
    batch->stream = stream;
    batch->charged_ns = 0;
    batch->launches = 0;
    batch->key = 0;
    batch->opened_ns = now_ns;
    timing->count++;
    timing->is_open = true;
    return true;
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
    struct capture_pause pause = capture_pause();
    bool done = real.cuEventRecord(batch->end, batch->stream) == CUDA_SUCCESS;
    capture_resume(pause);
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
static bool measure(struct timing *timing, const struct batch *batch, int64_t *gpu_ns)
{
    float own_ms = 0;
    float since_cover_ms = 0;
    if (real.cuEventElapsedTime(&own_ms, batch->start, batch->end) != CUDA_SUCCESS)
        return false;
    if (timing->cover != NULL && timing->cover_context == batch->context &&
        real.cuEventElapsedTime(&since_cover_ms, timing->cover, batch->end) == CUDA_SUCCESS &&
        since_cover_ms < own_ms)
        own_ms = since_cover_ms;
    *gpu_ns = own_ms > 0 ? (int64_t)(own_ms * NS_PER_MS) : 0;
    if (own_ms > 0) {
        timing->cover = batch->end;
        timing->cover_context = batch->context;
    }
    return true;
}

int timing_harvest(struct timing *timing, struct batch *batch, int64_t *gpu_ns)
{
    struct batch *oldest = timing_oldest(timing);
    if (oldest == NULL)
        return 0;
    struct capture_pause pause = capture_pause();
    CUresult result = real.cuEventQuery(oldest->end);
    bool measured = result == CUDA_SUCCESS && measure(timing, oldest, gpu_ns);
    capture_resume(pause);
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    *batch = *oldest;
    timing->first = (timing->first + 1) % TIMING_BATCHES;
    timing->count--;
    return measured ? 1 : -1;
}

int64_t timing_forget_context(struct timing *timing, CUcontext context)
{
    int64_t dropped_ns = 0;
    bool holds = false;
    for (uint32_t i = 0; i < timing->count; i++)
        holds = holds || at(timing, i)->context == context;
    for (uint32_t i = 0; holds && i < timing->count; i++)
        dropped_ns += at(timing, i)->charged_ns;
    if (holds) { /* contexts end rarely: the batches of others go along, their estimates stand */
        timing->count = 0;
        timing->is_open = false;
    }
    for (int i = 0; i < TIMING_BATCHES; i++)
        if (timing->ring[i].context == context)
            timing->ring[i].context = NULL;
    if (timing->cover_context == context)
        timing->cover = NULL;
    return dropped_ns;
}
