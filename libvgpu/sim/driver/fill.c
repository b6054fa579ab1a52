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

CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count)
{
    CALL_TAKES(cuMemset);
    return fill_rows(target, 0, value, 1, count, 1, NULL);
}

CUresult cuMemsetD16_v2(CUdeviceptr target, unsigned short value, size_t count)
{
    CALL_TAKES(cuMemset);
    return fill_rows(target, 0, value, 2, count, 1, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned int value, size_t count)
{
    CALL_TAKES(cuMemset);
    return fill_rows(target, 0, value, 4, count, 1, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream)
{
    CALL_TAKES(cuMemsetAsync);
    return fill_rows(target, 0, value, 1, count, 1, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count, CUstream stream)
{
    CALL_TAKES(cuMemsetAsync);
    return fill_rows(target, 0, value, 2, count, 1, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream)
{
    CALL_TAKES(cuMemsetAsync);
    return fill_rows(target, 0, value, 4, count, 1, stream);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                         size_t height)
{
    CALL_TAKES(cuMemset);
    return fill_rows(target, pitch, value, 1, width, height, NULL);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr target, size_t pitch, unsigned short value, size_t width,
                          size_t height)
{
    CALL_TAKES(cuMemset);
    return fill_rows(target, pitch, value, 2, width, height, NULL);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr target, size_t pitch, unsigned int value, size_t width,
                          size_t height)
{
    CALL_TAKES(cuMemset);
    return fill_rows(target, pitch, value, 4, width, height, NULL);
}

CUresult cuMemsetD2D8Async(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream)
{
    CALL_TAKES(cuMemsetAsync);
    return fill_rows(target, pitch, value, 1, width, height, stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr target, size_t pitch, unsigned short value, size_t width,
                            size_t height, CUstream stream)
{
    CALL_TAKES(cuMemsetAsync);
    return fill_rows(target, pitch, value, 2, width, height, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr target, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream)
{
    CALL_TAKES(cuMemsetAsync);
    return fill_rows(target, pitch, value, 4, width, height, stream);
}

TWIN(cuMemsetD2D8_v2_ptds,
     (CUdeviceptr target, size_t pitch, unsigned char value, size_t width, size_t height),
     cuMemsetD2D8_v2(target, pitch, value, width, height))
TWIN(cuMemsetD2D16_v2_ptds,
     (CUdeviceptr target, size_t pitch, unsigned short value, size_t width, size_t height),
     cuMemsetD2D16_v2(target, pitch, value, width, height))
TWIN(cuMemsetD2D32_v2_ptds,
     (CUdeviceptr target, size_t pitch, unsigned int value, size_t width, size_t height),
     cuMemsetD2D32_v2(target, pitch, value, width, height))
TWIN(cuMemsetD2D8Async_ptsz,
     (CUdeviceptr target, size_t pitch, unsigned char value, size_t width, size_t height,
      CUstream stream),
     cuMemsetD2D8Async(target, pitch, value, width, height, OWN(stream)))
TWIN(cuMemsetD2D16Async_ptsz,
     (CUdeviceptr target, size_t pitch, unsigned short value, size_t width, size_t height,
      CUstream stream),
     cuMemsetD2D16Async(target, pitch, value, width, height, OWN(stream)))
TWIN(cuMemsetD2D32Async_ptsz,
     (CUdeviceptr target, size_t pitch, unsigned int value, size_t width, size_t height,
      CUstream stream),
     cuMemsetD2D32Async(target, pitch, value, width, height, OWN(stream)))
