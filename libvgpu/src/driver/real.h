/* The driver's and NVML's own functions, by name: every hooked row of hooks.def and the calls we
 * make ourselves. Filled once per process by real_load_*; a function the driver lacks is NULL.
 * Read without a lock afterwards. A forked child keeps them: it has the same libraries mapped. */
#ifndef VGPU_REAL_H
#define VGPU_REAL_H

#include <stdbool.h>
#include <stddef.h>

#include "vgpu/cuda_api.h"
#include "vgpu/cuda_array.h"
#include "vgpu/cuda_calls.h"
#include "vgpu/cuda_graph.h"
#include "vgpu/cuda_vmm.h"
#include "vgpu/nvml_api.h"

/* Expands EACH(symbol) for the rows of hooks.def that are hooked and for their twins, nothing for
 * PASS. */
#define ROW_IF_START(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_LOOKUP(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_CONTEXT(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_CHARGED(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_VIRTUAL(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_TIMED(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_SYNC(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_POLL(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_CAPTURE(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_PASS(symbol, twin)
#define TWIN_none(symbol)
#define TWIN_ptsz(symbol) EACH(symbol##_ptsz)
#define TWIN_ptds(symbol) EACH(symbol##_ptds)
#define ROW(symbol, public_name, since, policy, twin, words) ROW_IF_##policy(symbol, twin)

/* What we call and do not hook. */
#define REAL_CUDA_CALLS(CALL) \
    CALL(cuDeviceGetAttribute) \
    CALL(cuDeviceGetCount) \
    CALL(cuDeviceGetUuid) \
    CALL(cuDeviceGetUuid_v2) \
    CALL(cuDeviceGetMemPool) \
    CALL(cuDeviceGetDefaultMemPool) \
    CALL(cuDeviceGetGraphMemAttribute) \
    CALL(cuDevicePrimaryCtxGetState) \
    CALL(cuMemPoolGetAttribute) \
    CALL(cuMemGetAddressRange_v2) \
    CALL(cuMemGetAllocationPropertiesFromHandle) \
    CALL(cuGraphGetNodes) \
    CALL(cuGraphNodeGetType) \
    CALL(cuGraphChildGraphNodeGetGraph) \
    CALL(cuGraphMemAllocNodeGetParams) \
    CALL(cuGraphMemFreeNodeGetParams) \
    CALL(cuGraphGetEdges) \
    CALL(cuGraphGetEdges_v2) \
    CALL(cuMemGetAllocationGranularity) \
    CALL(cuGraphKernelNodeGetParams) \
    CALL(cuGraphKernelNodeGetParams_v2) \
    CALL(cuCtxGetCurrent) \
    CALL(cuCtxGetDevice) \
    CALL(cuCtxGetLimit) \
    CALL(cuCtxFromGreenCtx) \
    CALL(cuArrayGetMemoryRequirements) \
    CALL(cuMipmappedArrayGetMemoryRequirements) \
    CALL(cuCtxPushCurrent_v2) \
    CALL(cuCtxPopCurrent_v2) \
    CALL(cuStreamGetCtx) \
    CALL(cuStreamGetCtx_v2) \
    CALL(cuModuleGetLoadingMode) \
    CALL(cuStreamGetId) \
    CALL(cuStreamGetId_ptsz) \
    CALL(cuPointerGetAttribute) \
    CALL(cuFuncGetName) \
    CALL(cuFuncGetAttribute) \
    CALL(cuKernelGetAttribute) \
    CALL(cuModuleGetFunctionCount) \
    CALL(cuLibraryGetKernelCount) \
    CALL(cuKernelGetName) \
    CALL(cuStreamIsCapturing) \
    CALL(cuThreadExchangeStreamCaptureMode) \
    CALL(cuEventCreate) \
    CALL(cuEventDestroy_v2) \
    CALL(cuEventRecord) \
    CALL(cuEventElapsedTime)

#define REAL_NVML_CALLS(CALL) \
    CALL(nvmlInit_v2) \
    CALL(nvmlShutdown) \
    CALL(nvmlDeviceGetHandleByUUID) \
    CALL(nvmlDeviceGetUUID) \
    CALL(nvmlDeviceGetGpuInstanceId) \
    CALL(nvmlDeviceGetComputeInstanceId)

struct real {
#define EACH(symbol) __typeof__(&symbol) symbol;
#include "hooks/hooks.def"
#undef EACH
#define CALL(symbol) __typeof__(&symbol) symbol;
    REAL_CUDA_CALLS(CALL)
    REAL_NVML_CALLS(CALL)
#undef CALL
};

/* A variable and not behind calls: hooks and assembly jump through it, and only real.c writes. */
extern struct real real;

/* Fill the CUDA (NVML) part from the library the process has or can load. False when there is none.
 * Cheap once it is done. */
bool real_load_cuda(void);
bool real_load_nvml(void);

/* True once the process has that library; never loads it. */
bool real_has_cuda(void);
bool real_has_nvml(void);

/* The driver's own function of that name, hooked or not; NULL: it defines none. After
 * real_load_cuda. */
void *real_find_cuda(const char *symbol);

/* The loader's own dlsym and dlvsym, found without asking them; NULL only in a process that has
 * neither libc.so.6 nor libdl.so.2. */
void *real_dlsym(void *handle, const char *name);

/* The real dlsym and dlvsym as addresses, for the tail jumps of resolve.c. */
extern void *real_dlsym_address;
extern void *real_dlvsym_address;
bool real_find_loader(void);

#endif
