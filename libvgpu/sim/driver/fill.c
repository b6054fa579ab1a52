/* Fills of device memory, in a row or in rows. */
#include "copy.h"
#include "twins.h"

#define MAX_PITCH_BYTES 0x7fffffffu

static CUresult fill_rows(CUdeviceptr target, uint64_t pitch_bytes, unsigned int value,
                          unsigned int value_bytes, uint64_t count, uint64_t rows, CUstream handle)
{
    RESOLVE_STREAM(stream, handle);
    if (count == 0 || rows == 0)
        return CUDA_SUCCESS;
    INVALID_IF(count > UINT64_MAX / value_bytes || target % value_bytes);
    struct region region = region_of_row(target, count * value_bytes);
    if (rows > 1) { /* the pitch of a single row is documented as unused */
        INVALID_IF(pitch_bytes < region.width_bytes || pitch_bytes > MAX_PITCH_BYTES ||
                   pitch_bytes % value_bytes || rows > UINT64_MAX / MAX_PITCH_BYTES);
        region.rows = rows;
        region.pitch_bytes = pitch_bytes;
    }
    INVALID_IF(!memory_find(target, region_span_bytes(&region), NULL));
    return fill_issue(stream, &region, value, value_bytes);
}

/* Fills with values of so many bits: in a row and in rows, at once and on a stream. */
#define FILLS(bits, type) \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr target, type value, size_t count) \
    { \
        CALL_TAKES(cuMemset); \
        return fill_rows(target, 0, value, sizeof value, count, 1, NULL); \
    } \
    CUresult cuMemsetD##bits##Async(CUdeviceptr target, type value, size_t count, CUstream stream) \
    { \
        CALL_TAKES(cuMemsetAsync); \
        return fill_rows(target, 0, value, sizeof value, count, 1, stream); \
    } \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr target, size_t pitch, type value, size_t width, \
                                    size_t height) \
    { \
        CALL_TAKES(cuMemset); \
        return fill_rows(target, pitch, value, sizeof value, width, height, NULL); \
    } \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr target, size_t pitch, type value, size_t width, \
                                      size_t height, CUstream stream) \
    { \
        CALL_TAKES(cuMemsetAsync); \
        return fill_rows(target, pitch, value, sizeof value, width, height, stream); \
    } \
    TWIN(cuMemsetD##bits##Async_ptsz, \
         (CUdeviceptr target, type value, size_t count, CUstream stream), \
         cuMemsetD##bits##Async(target, value, count, OWN(stream))) \
    TWIN(cuMemsetD2D##bits##Async_ptsz, \
         (CUdeviceptr target, size_t pitch, type value, size_t width, size_t height, \
          CUstream stream), \
         cuMemsetD2D##bits##Async(target, pitch, value, width, height, OWN(stream))) \
    TWIN(cuMemsetD##bits##_v2_ptds, (CUdeviceptr target, type value, size_t count), \
         cuMemsetD##bits##_v2(target, value, count)) \
    TWIN(cuMemsetD2D##bits##_v2_ptds, \
         (CUdeviceptr target, size_t pitch, type value, size_t width, size_t height), \
         cuMemsetD2D##bits##_v2(target, pitch, value, width, height))

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
