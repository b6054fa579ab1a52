/* Copies, fills and arrays of before CUDA 3.2, with 32-bit sizes and addresses: the newer ones with
 * wider arguments. */
#include "array.h"

CUresult cuMemcpyHtoD(CUdeviceptr_v1 target, const void *source, unsigned int bytes)
{
    return cuMemcpyHtoD_v2(target, source, bytes);
}

CUresult cuMemcpyDtoH(void *target, CUdeviceptr_v1 source, unsigned int bytes)
{
    return cuMemcpyDtoH_v2(target, source, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned int bytes)
{
    return cuMemcpyDtoD_v2(target, source, bytes);
}

CUresult cuMemcpyHtoA(CUarray target, unsigned int offset, const void *source, unsigned int bytes)
{
    return cuMemcpyHtoA_v2(target, offset, source, bytes);
}

CUresult cuMemcpyAtoH(void *target, CUarray source, unsigned int offset, unsigned int bytes)
{
    return cuMemcpyAtoH_v2(target, source, offset, bytes);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 target, const void *source, unsigned int bytes,
                           CUstream stream)
{
    return cuMemcpyHtoDAsync_v2(target, source, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream)
{
    return cuMemcpyDtoHAsync_v2(target, source, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned int bytes,
                           CUstream stream)
{
    return cuMemcpyDtoDAsync_v2(target, source, bytes, stream);
}

CUresult cuMemcpyHtoAAsync(CUarray target, unsigned int offset, const void *source,
                           unsigned int bytes, CUstream stream)
{
    return cuMemcpyHtoAAsync_v2(target, offset, source, bytes, stream);
}

CUresult cuMemcpyAtoHAsync(void *target, CUarray source, unsigned int offset, unsigned int bytes,
                           CUstream stream)
{
    return cuMemcpyAtoHAsync_v2(target, source, offset, bytes, stream);
}

CUresult cuMemcpyDtoA(CUarray target, unsigned int offset, CUdeviceptr_v1 source,
                      unsigned int bytes)
{
    return cuMemcpyDtoA_v2(target, offset, source, bytes);
}

CUresult cuMemcpyAtoD(CUdeviceptr_v1 target, CUarray source, unsigned int offset,
                      unsigned int bytes)
{
    return cuMemcpyAtoD_v2(target, source, offset, bytes);
}

CUresult cuMemcpyAtoA(CUarray target, unsigned int target_offset, CUarray source,
                      unsigned int source_offset, unsigned int bytes)
{
    return cuMemcpyAtoA_v2(target, target_offset, source, source_offset, bytes);
}

CUresult cuMemsetD8(CUdeviceptr_v1 target, unsigned char value, unsigned int count)
{
    return cuMemsetD8_v2(target, value, count);
}

CUresult cuMemsetD16(CUdeviceptr_v1 target, unsigned short value, unsigned int count)
{
    return cuMemsetD16_v2(target, value, count);
}

CUresult cuMemsetD32(CUdeviceptr_v1 target, unsigned int value, unsigned int count)
{
    return cuMemsetD32_v2(target, value, count);
}

CUresult cuMemsetD2D8(CUdeviceptr_v1 target, unsigned int pitch, unsigned char value,
                      unsigned int width, unsigned int height)
{
    return cuMemsetD2D8_v2(target, pitch, value, width, height);
}

CUresult cuMemsetD2D16(CUdeviceptr_v1 target, unsigned int pitch, unsigned short value,
                       unsigned int width, unsigned int height)
{
    return cuMemsetD2D16_v2(target, pitch, value, width, height);
}

CUresult cuMemsetD2D32(CUdeviceptr_v1 target, unsigned int pitch, unsigned int value,
                       unsigned int width, unsigned int height)
{
    return cuMemsetD2D32_v2(target, pitch, value, width, height);
}

static CUDA_MEMCPY2D widen_2d(const CUDA_MEMCPY2D_v1 *old)
{
    return (CUDA_MEMCPY2D){
        .srcXInBytes = old->srcXInBytes,
        .srcY = old->srcY,
        .srcMemoryType = old->srcMemoryType,
        .srcHost = old->srcHost,
        .srcDevice = old->srcDevice,
        .srcArray = old->srcArray,
        .srcPitch = old->srcPitch,
        .dstXInBytes = old->dstXInBytes,
        .dstY = old->dstY,
        .dstMemoryType = old->dstMemoryType,
        .dstHost = old->dstHost,
        .dstDevice = old->dstDevice,
        .dstArray = old->dstArray,
        .dstPitch = old->dstPitch,
        .WidthInBytes = old->WidthInBytes,
        .Height = old->Height,
    };
}

static CUDA_MEMCPY3D widen_3d(const CUDA_MEMCPY3D_v1 *old)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = old->srcXInBytes,
        .srcY = old->srcY,
        .srcZ = old->srcZ,
        .srcLOD = old->srcLOD,
        .srcMemoryType = old->srcMemoryType,
        .srcHost = old->srcHost,
        .srcDevice = old->srcDevice,
        .srcArray = old->srcArray,
        .reserved0 = old->reserved0,
        .srcPitch = old->srcPitch,
        .srcHeight = old->srcHeight,
        .dstXInBytes = old->dstXInBytes,
        .dstY = old->dstY,
        .dstZ = old->dstZ,
        .dstLOD = old->dstLOD,
        .dstMemoryType = old->dstMemoryType,
        .dstHost = old->dstHost,
        .dstDevice = old->dstDevice,
        .dstArray = old->dstArray,
        .reserved1 = old->reserved1,
        .dstPitch = old->dstPitch,
        .dstHeight = old->dstHeight,
        .WidthInBytes = old->WidthInBytes,
        .Height = old->Height,
        .Depth = old->Depth,
    };
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *box)
{
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY2D wide = widen_2d(box);
    return cuMemcpy2D_v2(&wide);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *box)
{
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY2D wide = widen_2d(box);
    return cuMemcpy2DUnaligned_v2(&wide);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *box, CUstream stream)
{
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY2D wide = widen_2d(box);
    return cuMemcpy2DAsync_v2(&wide, stream);
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *box)
{
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D wide = widen_3d(box);
    return cuMemcpy3D_v2(&wide);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *box, CUstream stream)
{
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D wide = widen_3d(box);
    return cuMemcpy3DAsync_v2(&wide, stream);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *form)
{
    if (!form)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY_DESCRIPTOR wide = {
        .Width = form->Width,
        .Height = form->Height,
        .Format = form->Format,
        .NumChannels = form->NumChannels,
    };
    return cuArrayCreate_v2(array, &wide);
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *form, CUarray array)
{
    CUDA_ARRAY_DESCRIPTOR wide;
    CUresult result = form ? cuArrayGetDescriptor_v2(&wide, array) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *form = (CUDA_ARRAY_DESCRIPTOR_v1){
            .Width = (unsigned int)wide.Width,
            .Height = (unsigned int)wide.Height,
            .Format = wide.Format,
            .NumChannels = wide.NumChannels,
        };
    return result;
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *form)
{
    if (!form)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR wide = {
        .Width = form->Width,
        .Height = form->Height,
        .Depth = form->Depth,
        .Format = form->Format,
        .NumChannels = form->NumChannels,
        .Flags = form->Flags,
    };
    return cuArray3DCreate_v2(array, &wide);
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *form, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;
    CUresult result = form ? cuArray3DGetDescriptor_v2(&wide, array) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *form = (CUDA_ARRAY3D_DESCRIPTOR_v1){
            .Width = (unsigned int)wide.Width,
            .Height = (unsigned int)wide.Height,
            .Depth = (unsigned int)wide.Depth,
            .Format = wide.Format,
            .NumChannels = wide.NumChannels,
            .Flags = wide.Flags,
        };
    return result;
}
