/*
 * Entry points of before CUDA 3.2, with sizes and addresses of 32 bits, that work in the current
 * context. A real driver keeps them for contexts of that time: on one that is made today they
 * answer CUDA_ERROR_INVALID_CONTEXT, whatever they are given (seen on an H100 with driver 580).
 * Whether cuCtxCreate without a suffix still makes such a context was not tried there; here none
 * is one of that time. cuDeviceTotalMem, which asks a device, is in devices.c.
 */
#include "driver.h"

static CUresult refuse(void)
{
    CURRENT_CONTEXT(context);
    return CUDA_ERROR_INVALID_CONTEXT;
}

#define OLD(name, parameters) \
    CUresult name parameters \
    { \
        return refuse(); \
    }

/* ---- memory ---------------------------------------------------------------------------------- */

OLD(cuMemGetInfo, (unsigned int *free_bytes, unsigned int *total_bytes))
OLD(cuMemAlloc, (CUdeviceptr_v1 * address, unsigned int bytes))
OLD(cuMemAllocPitch, (CUdeviceptr_v1 * address, unsigned int *pitch, unsigned int width_bytes,
                      unsigned int height, unsigned int element_bytes))
OLD(cuMemFree, (CUdeviceptr_v1 address))
OLD(cuMemAllocHost, (void **address, unsigned int bytes))
OLD(cuMemHostGetDevicePointer, (CUdeviceptr_v1 * mapped, void *address, unsigned int flags))
OLD(cuMemGetAddressRange, (CUdeviceptr_v1 * base, unsigned int *bytes, CUdeviceptr_v1 address))
OLD(cuModuleGetGlobal,
    (CUdeviceptr_v1 * address, unsigned int *bytes, CUmodule module, const char *name))

/* ---- arrays ---------------------------------------------------------------------------------- */

OLD(cuArrayCreate, (CUarray * array, const CUDA_ARRAY_DESCRIPTOR_v1 *form))
OLD(cuArrayGetDescriptor, (CUDA_ARRAY_DESCRIPTOR_v1 * form, CUarray array))
OLD(cuArray3DCreate, (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *form))
OLD(cuArray3DGetDescriptor, (CUDA_ARRAY3D_DESCRIPTOR_v1 * form, CUarray array))

/* ---- copies ---------------------------------------------------------------------------------- */

OLD(cuMemcpyHtoD, (CUdeviceptr_v1 target, const void *source, unsigned int bytes))
OLD(cuMemcpyHtoDAsync,
    (CUdeviceptr_v1 target, const void *source, unsigned int bytes, CUstream stream))
OLD(cuMemcpyDtoH, (void *target, CUdeviceptr_v1 source, unsigned int bytes))
OLD(cuMemcpyDtoHAsync, (void *target, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream))
OLD(cuMemcpyDtoD, (CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned int bytes))
OLD(cuMemcpyDtoDAsync,
    (CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned int bytes, CUstream stream))
OLD(cuMemcpyDtoA, (CUarray target, unsigned int offset, CUdeviceptr_v1 source, unsigned int bytes))
OLD(cuMemcpyAtoD, (CUdeviceptr_v1 target, CUarray source, unsigned int offset, unsigned int bytes))
OLD(cuMemcpyHtoA, (CUarray target, unsigned int offset, const void *source, unsigned int bytes))
OLD(cuMemcpyHtoAAsync,
    (CUarray target, unsigned int offset, const void *source, unsigned int bytes, CUstream stream))
OLD(cuMemcpyAtoH, (void *target, CUarray source, unsigned int offset, unsigned int bytes))
OLD(cuMemcpyAtoHAsync,
    (void *target, CUarray source, unsigned int offset, unsigned int bytes, CUstream stream))
OLD(cuMemcpyAtoA, (CUarray target, unsigned int target_offset, CUarray source,
                   unsigned int source_offset, unsigned int bytes))
OLD(cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *box))
OLD(cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *box))
OLD(cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *box, CUstream stream))
OLD(cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *box))
OLD(cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *box, CUstream stream))

/* ---- fills ----------------------------------------------------------------------------------- */

OLD(cuMemsetD8, (CUdeviceptr_v1 target, unsigned char value, unsigned int count))
OLD(cuMemsetD16, (CUdeviceptr_v1 target, unsigned short value, unsigned int count))
OLD(cuMemsetD32, (CUdeviceptr_v1 target, unsigned int value, unsigned int count))
OLD(cuMemsetD2D8, (CUdeviceptr_v1 target, unsigned int pitch, unsigned char value,
                   unsigned int width, unsigned int height))
OLD(cuMemsetD2D16, (CUdeviceptr_v1 target, unsigned int pitch, unsigned short value,
                    unsigned int width, unsigned int height))
OLD(cuMemsetD2D32, (CUdeviceptr_v1 target, unsigned int pitch, unsigned int value,
                    unsigned int width, unsigned int height))
