/* Hooks of copies from and to the host. They run next to kernels, on engines of their own, and are
 * not charged; but one on the stream of an open measurement would be measured with it, so it ends
 * that first. cuMemcpyDtoH, for which programs wait like for a synchronisation, is in
 * hook_launch.c. */
#include "hooks/hook_measurement.h"

#define TO_DEVICE (CUdeviceptr target, const void *source, size_t bytes)
#define TO_DEVICE_ASYNC (CUdeviceptr target, const void *source, size_t bytes, CUstream stream)
#define TO_HOST_ASYNC (void *target, CUdeviceptr source, size_t bytes, CUstream stream)
#define COPY_VALUES (target, source, bytes)
#define COPY_ASYNC_VALUES (target, source, bytes, stream)

ENDS_MEASUREMENT(cuMemcpyHtoD_v2, TO_DEVICE, COPY_VALUES)
ENDS_MEASUREMENT(cuMemcpyHtoD_v2_ptds, TO_DEVICE, COPY_VALUES)
ENDS_MEASUREMENT(cuMemcpyHtoDAsync_v2, TO_DEVICE_ASYNC, COPY_ASYNC_VALUES)
ENDS_MEASUREMENT(cuMemcpyHtoDAsync_v2_ptsz, TO_DEVICE_ASYNC, COPY_ASYNC_VALUES)
ENDS_MEASUREMENT(cuMemcpyDtoHAsync_v2, TO_HOST_ASYNC, COPY_ASYNC_VALUES)
ENDS_MEASUREMENT(cuMemcpyDtoHAsync_v2_ptsz, TO_HOST_ASYNC, COPY_ASYNC_VALUES)

#define TO_ARRAY(size) (CUarray target, size offset, const void *source, size bytes)
#define TO_ARRAY_ASYNC(size) \
    (CUarray target, size offset, const void *source, size bytes, CUstream stream)
#define FROM_ARRAY(size) (void *target, CUarray source, size offset, size bytes)
#define FROM_ARRAY_ASYNC(size) \
    (void *target, CUarray source, size offset, size bytes, CUstream stream)
#define TO_VALUES (target, offset, source, bytes)
#define TO_ASYNC_VALUES (target, offset, source, bytes, stream)
#define FROM_VALUES (target, source, offset, bytes)
#define FROM_ASYNC_VALUES (target, source, offset, bytes, stream)

ENDS_MEASUREMENT(cuMemcpyHtoA, TO_ARRAY(unsigned int), TO_VALUES)
ENDS_MEASUREMENT(cuMemcpyHtoA_v2, TO_ARRAY(size_t), TO_VALUES)
ENDS_MEASUREMENT(cuMemcpyHtoA_v2_ptds, TO_ARRAY(size_t), TO_VALUES)
ENDS_MEASUREMENT(cuMemcpyHtoAAsync, TO_ARRAY_ASYNC(unsigned int), TO_ASYNC_VALUES)
ENDS_MEASUREMENT(cuMemcpyHtoAAsync_v2, TO_ARRAY_ASYNC(size_t), TO_ASYNC_VALUES)
ENDS_MEASUREMENT(cuMemcpyHtoAAsync_v2_ptsz, TO_ARRAY_ASYNC(size_t), TO_ASYNC_VALUES)
ENDS_MEASUREMENT(cuMemcpyAtoH, FROM_ARRAY(unsigned int), FROM_VALUES)
ENDS_MEASUREMENT(cuMemcpyAtoH_v2, FROM_ARRAY(size_t), FROM_VALUES)
ENDS_MEASUREMENT(cuMemcpyAtoH_v2_ptds, FROM_ARRAY(size_t), FROM_VALUES)
ENDS_MEASUREMENT(cuMemcpyAtoHAsync, FROM_ARRAY_ASYNC(unsigned int), FROM_ASYNC_VALUES)
ENDS_MEASUREMENT(cuMemcpyAtoHAsync_v2, FROM_ARRAY_ASYNC(size_t), FROM_ASYNC_VALUES)
ENDS_MEASUREMENT(cuMemcpyAtoHAsync_v2_ptsz, FROM_ARRAY_ASYNC(size_t), FROM_ASYNC_VALUES)
