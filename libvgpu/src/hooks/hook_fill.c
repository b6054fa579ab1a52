/* Hooks of fills of device memory: launches, by their bytes. The forms without a stream, too, only
 * put work on the default stream. */
#include "hooks/hook_launch.h"

#include <stddef.h>

static const char row_fill;
static const char box_fill;

#define FILL(symbol, value_type, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, value_type value, size_t count) \
    { \
        LAUNCH_KIND(symbol, &row_fill, (uint64_t)count * sizeof value, \
                    launch_stream(NULL, per_thread), false, real.symbol(target, value, count)); \
    }

#define FILL_ASYNC(symbol, value_type, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, value_type value, size_t count, \
                                CUstream stream) \
    { \
        LAUNCH_KIND(symbol, &row_fill, (uint64_t)count * sizeof value, \
                    launch_stream(stream, per_thread), false, \
                    real.symbol(target, value, count, stream)); \
    }

#define FILL_BOX(symbol, value_type, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, size_t pitch, value_type value, size_t width, \
                                size_t height) \
    { \
        LAUNCH_KIND(symbol, &box_fill, (uint64_t)width * height * sizeof value, \
                    launch_stream(NULL, per_thread), false, \
                    real.symbol(target, pitch, value, width, height)); \
    }

#define FILL_BOX_ASYNC(symbol, value_type, per_thread) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr target, size_t pitch, value_type value, size_t width, \
                                size_t height, CUstream stream) \
    { \
        LAUNCH_KIND(symbol, &box_fill, (uint64_t)width * height * sizeof value, \
                    launch_stream(stream, per_thread), false, \
                    real.symbol(target, pitch, value, width, height, stream)); \
    }

#define FILLS(bits, value_type) \
    FILL(cuMemsetD##bits##_v2, value_type, 0) \
    FILL(cuMemsetD##bits##_v2_ptds, value_type, 1) \
    FILL_ASYNC(cuMemsetD##bits##Async, value_type, 0) \
    FILL_ASYNC(cuMemsetD##bits##Async_ptsz, value_type, 1) \
    FILL_BOX(cuMemsetD2D##bits##_v2, value_type, 0) \
    FILL_BOX(cuMemsetD2D##bits##_v2_ptds, value_type, 1) \
    FILL_BOX_ASYNC(cuMemsetD2D##bits##Async, value_type, 0) \
    FILL_BOX_ASYNC(cuMemsetD2D##bits##Async_ptsz, value_type, 1)

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
