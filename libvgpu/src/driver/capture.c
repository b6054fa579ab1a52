#include "driver/capture.h"

#include "driver/real.h"

/* Captures that are remembered by the stream they began on; those beyond are only counted. */
#define MOST_ORIGINS 64

static int capture_count;                      /* atomic */
static __thread int capture_mine;              /* begun here and not ended here */
static int beginning_count;                    /* atomic: hooks between capture_begins and _begun */
static __thread int beginning_mine;            /* of them in this thread: 1 or 0 */
static CUstream capture_origins[MOST_ORIGINS]; /* atomic; NULL: free */

bool capture_is_any(void)
{
    return __atomic_load_n(&capture_count, __ATOMIC_ACQUIRE) > 0;
}

bool capture_is_mine(void)
{
    return capture_mine > 0 && capture_is_any();
}

bool capture_begins_elsewhere(void)
{
    return __atomic_load_n(&beginning_count, __ATOMIC_ACQUIRE) > beginning_mine;
}

bool capture_is_active(CUstream stream)
{
    if (__builtin_expect(!capture_is_any(), 1))
        return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return real.cuStreamIsCapturing == NULL ||
           real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult capture_ask(CUstream stream, bool *is_captured)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = CUDA_SUCCESS;
    *is_captured = false;
    if (!capture_is_any())
        return result;
    if (real.cuStreamIsCapturing != NULL)
        result = real.cuStreamIsCapturing(stream, &status);
    *is_captured = real.cuStreamIsCapturing == NULL || result != CUDA_SUCCESS ||
                   status != CU_STREAM_CAPTURE_STATUS_NONE;
    /* the driver takes nothing there, and the call itself is to say so and spoil the capture */
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ? CUDA_SUCCESS : result;
}

struct capture_pause capture_pause(void)
{
    struct capture_pause pause = {CU_STREAM_CAPTURE_MODE_RELAXED, false};
    if (real.cuThreadExchangeStreamCaptureMode != NULL)
        pause.is_changed = real.cuThreadExchangeStreamCaptureMode(&pause.mode) == CUDA_SUCCESS;
    return pause;
}

void capture_resume(struct capture_pause pause)
{
    if (pause.is_changed)
        real.cuThreadExchangeStreamCaptureMode(&pause.mode);
}

/* Replaces `before` with `after`; false if `before` is not remembered. */
static bool replace_origin(CUstream before, CUstream after)
{
    for (int i = 0; i < MOST_ORIGINS; i++) {
        CUstream expected = before;
        if (__atomic_load_n(&capture_origins[i], __ATOMIC_RELAXED) == before &&
            __atomic_compare_exchange_n(&capture_origins[i], &expected, after, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

/* One capture less. Another thread may end a relaxed one: the own count only errs on the safe side. */
static void count_end(void)
{
    if (capture_mine > 0)
        capture_mine--;
    if (capture_is_any())
        __atomic_fetch_sub(&capture_count, 1, __ATOMIC_ACQ_REL);
}

void capture_forget_stream(CUstream stream)
{
    if (__builtin_expect(!capture_is_any(), 1))
        return;
    if (replace_origin(stream, NULL))
        count_end();
}

void capture_begins(void)
{
    __atomic_fetch_add(&capture_count, 1, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&beginning_count, 1, __ATOMIC_ACQ_REL);
    beginning_mine = 1;
}

void capture_begun(CUstream stream, CUresult result)
{
    beginning_mine = 0;
    __atomic_fetch_sub(&beginning_count, 1, __ATOMIC_ACQ_REL);
    if (result != CUDA_SUCCESS) {
        __atomic_fetch_sub(&capture_count, 1, __ATOMIC_ACQ_REL);
        return;
    }
    capture_mine++;
    replace_origin(NULL, stream);
}

void capture_ended(CUstream stream, CUresult result)
{
    bool was_none = result == CUDA_ERROR_ILLEGAL_STATE || result == CUDA_ERROR_INVALID_VALUE ||
                    result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE ||
                    result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD ||
                    result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
                    result == CUDA_ERROR_NOT_SUPPORTED;
    if (was_none)
        return;
    replace_origin(stream, NULL);
    count_end();
}
