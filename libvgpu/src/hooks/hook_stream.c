/* Hooks of the end of a stream, which may come while it has work. The driver takes a handle that it
 * has destroyed for a pointer, so whatever of ours still names the stream is ended before. */
#include "compute/cap/throttle.h"
#include "driver/capture.h"
#include "hooks/hook.h"

#define DESTROY(symbol) \
    VGPU_EXPORT CUresult symbol(CUstream stream) \
    { \
        NEEDS(symbol); \
        throttle_forget_stream(stream); \
        CUresult result = real.symbol(stream); \
        if (result == CUDA_SUCCESS) \
            capture_forget_stream(stream); \
        return result; \
    }

DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
