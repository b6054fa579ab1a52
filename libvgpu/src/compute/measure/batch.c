#include "compute/measure/batch.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver/real.h"
#include "slice/devices.h"
#include "slice/waiting.h"

#define PAIRS 3
#define MOST_PAIR_NS 200000

struct batch_visit batch_visit(CUcontext context)
{
    struct batch_visit visit = {capture_pause(), false};
    CUcontext current = NULL;
    real.cuCtxGetCurrent(&current);
    if (context != NULL && context != current)
        visit.is_pushed = real.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    return visit;
}

void batch_leave(struct batch_visit visit)
{
    CUcontext left;
    if (visit.is_pushed)
        real.cuCtxPopCurrent_v2(&left);
    capture_resume(visit.pause);
}

bool batch_prepare_end(struct batch *batch, uint32_t index)
{
    CUevent *end = &batch->ends[index];
    if (*end == NULL && real.cuEventCreate(end, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        *end = NULL;
    return *end != NULL;
}

bool batch_prepare(struct batch *batch, CUcontext context)
{
    if (context == NULL)
        return false;
    if (batch->context == context)
        return true;
    if (batch->context != NULL) { /* another context's: they can only be destroyed */
        real.cuEventDestroy_v2(batch->start);
        for (uint32_t i = 0; i < BATCH_STREAMS && batch->ends[i] != NULL; i++)
            real.cuEventDestroy_v2(batch->ends[i]);
        batch->context = NULL;
    }
    memset(batch->ends, 0, sizeof batch->ends); /* those of a context that has ended are gone */
    if (real.cuEventCreate(&batch->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return false;
    if (!batch_prepare_end(batch, 0)) {
        real.cuEventDestroy_v2(batch->start);
        return false;
    }
    batch->context = context;
    return true;
}

bool batch_is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return capture_begins_elsewhere() ||
           (real.cuStreamIsCapturing != NULL &&
            (real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
             status != CU_STREAM_CAPTURE_STATUS_NONE));
}

bool batch_record_ends(const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->stream_count; i++)
        if (__atomic_load_n(&batch->is_cut, __ATOMIC_ACQUIRE) ||
            batch_is_captured(batch->streams[i]) ||
            real.cuEventRecord(batch->ends[i], batch->streams[i]) != CUDA_SUCCESS)
            return false;
    return true;
}

CUresult batch_ask(const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->stream_count; i++) {
        CUresult result = real.cuEventQuery(batch->ends[i]);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

float batch_last_end_ms(const struct batch *batch, CUevent since, uint32_t *last)
{
    float most_ms = -1;
    for (uint32_t i = 0; i < batch->stream_count; i++) {
        float ms = 0;
        if (real.cuEventElapsedTime(&ms, since, batch->ends[i]) != CUDA_SUCCESS)
            return -1;
        if (i == 0 || ms > most_ms) {
            most_ms = ms;
            *last = i;
        }
    }
    return most_ms;
}

bool batch_is_later(CUevent event, CUevent later, int64_t *by_ns)
{
    float ms = 0;
    if (real.cuEventElapsedTime(&ms, event, later) != CUDA_SUCCESS || ms <= 0)
        return false;
    *by_ns = (int64_t)(ms * BATCH_NS_PER_MS);
    return true;
}

int64_t batch_pair_ns(const struct batch *batch, CUstream stream)
{
    int64_t give_up_ns = waiting_now_ns() + MOST_PAIR_NS;
    float least_ms = 0;
    for (int i = 0; i < PAIRS; i++) {
        float ms = 0;
        if (real.cuEventRecord(batch->start, stream) != CUDA_SUCCESS ||
            real.cuEventRecord(batch->ends[0], stream) != CUDA_SUCCESS)
            return 0;
        CUresult result;
        while ((result = real.cuEventQuery(batch->ends[0])) == CUDA_ERROR_NOT_READY)
            if (waiting_now_ns() > give_up_ns)
                return 0;
        if (result != CUDA_SUCCESS ||
            real.cuEventElapsedTime(&ms, batch->start, batch->ends[0]) != CUDA_SUCCESS)
            return 0;
        least_ms = i == 0 || ms < least_ms ? ms : least_ms;
    }
    return (int64_t)(least_ms * BATCH_NS_PER_MS) + 1;
}

int batch_thread_of(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? (int)syscall(SYS_gettid) : 0;
}

void batch_begin(struct batch *batch, CUstream stream, int64_t now_ns)
{
    batch->streams[0] = stream;
    batch->stream_count = 1;
    batch->thread = batch_thread_of(stream);
    batch->opened_ns = now_ns;
    batch->charged_ns = batch->parts_ns = batch->overdue_ns = batch->counted_ns = 0;
    batch->idle_ns = batch->launched_ns = 0;
    batch->is_sample = batch->ends_behind = false;
    batch->speaks_for_ns = 0;
    batch->is_beside = batch->is_shared = batch->is_bound = false;
    batch->coming = batch->launches = batch->least_launches = batch->kind_count = 0;
}

void batch_count(struct batch *batch, uint64_t key, int64_t price_ns, int64_t launches)
{
    batch->launches += (uint32_t)launches;
    for (uint32_t i = 0; i < batch->kind_count; i++)
        if (batch->kinds[i].key == key) {
            batch->kinds[i].launches += (uint32_t)launches;
            batch->kinds[i].price_ns = price_ns;
            return;
        }
    if (batch->kind_count < BATCH_KINDS)
        batch->kinds[batch->kind_count++] = (struct batch_kind){key, price_ns, (uint32_t)launches};
}

bool batch_is_on(const struct batch *batch, CUstream stream)
{
    for (uint32_t i = 0; i < batch->stream_count; i++)
        if (batch->streams[i] == stream)
            return batch->thread == batch_thread_of(stream);
    return false;
}

bool batch_can_join(const struct batch *batch, CUstream stream)
{
    return batch->stream_count < BATCH_STREAMS && batch->thread == 0 &&
           batch_thread_of(stream) == 0 && devices_context_of(stream) == batch->context;
}
