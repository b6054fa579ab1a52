/* The driver's and NVML's own functions, by name: every hooked row of hooks.def and the calls we
 * make ourselves. Filled once per process by real_load_*; a function the driver lacks is NULL.
 * Read without a lock afterwards. A forked child keeps them: it has the same libraries mapped. */
#ifndef VGPU_REAL_H
#define VGPU_REAL_H

#include <stdbool.h>
#include <stddef.h>

#include "vgpu/cuda_api.h"
#include "vgpu/nvml_api.h"

/* Expands EACH(row) for the rows of hooks.def that are hooked, nothing for PASS. */
#define ROW_IF_START(...) EACH(__VA_ARGS__)
#define ROW_IF_LOOKUP(...) EACH(__VA_ARGS__)
#define ROW_IF_CONTEXT(...) EACH(__VA_ARGS__)
#define ROW_IF_CHARGED(...) EACH(__VA_ARGS__)
#define ROW_IF_VIRTUAL(...) EACH(__VA_ARGS__)
#define ROW_IF_TIMED(...) EACH(__VA_ARGS__)
#define ROW_IF_SYNC(...) EACH(__VA_ARGS__)
#define ROW_IF_CAPTURE(...) EACH(__VA_ARGS__)
#define ROW_IF_PASS(...)
#define ROW(symbol, public_name, since, policy, words) ROW_IF_##policy(symbol, public_name, since)

/* What we call and do not hook. */
#define REAL_CUDA_CALLS(CALL) \
    CALL(cuDeviceGetCount) \
    CALL(cuDeviceGetUuid) \
    CALL(cuDeviceGetUuid_v2) \
    CALL(cuDevicePrimaryCtxGetState) \
    CALL(cuCtxGetCurrent) \
    CALL(cuCtxGetDevice) \
    CALL(cuCtxPushCurrent_v2) \
    CALL(cuCtxPopCurrent_v2) \
    CALL(cuStreamGetCtx) \
    CALL(cuPointerGetAttribute) \
    CALL(cuStreamIsCapturing) \
    CALL(cuThreadExchangeStreamCaptureMode) \
    CALL(cuEventCreate) \
    CALL(cuEventDestroy_v2) \
    CALL(cuEventRecord) \
    CALL(cuEventQuery) \
    CALL(cuEventElapsedTime)

#define REAL_NVML_CALLS(CALL) \
    CALL(nvmlInit_v2) \
    CALL(nvmlShutdown) \
    CALL(nvmlDeviceGetHandleByUUID) \
    CALL(nvmlDeviceGetUUID) \
    CALL(nvmlDeviceGetComputeRunningProcesses_v3)

struct real {
#define EACH(symbol, public_name, since) __typeof__(&symbol) symbol;
#include "hooks.def"
#undef EACH
#define CALL(symbol) __typeof__(&symbol) symbol;
    REAL_CUDA_CALLS(CALL)
    REAL_NVML_CALLS(CALL)
#undef CALL
};

extern struct real real;

/* Fill the CUDA (NVML) part from the library the process has or can load. False when there is none.
 * Cheap once it is done. */
bool real_load_cuda(void);
bool real_load_nvml(void);

/* True once the process has that library; never loads it. */
bool real_has_cuda(void);
bool real_has_nvml(void);

/* The loader's own dlsym and dlvsym, found without asking them; NULL only in a process that has
 * neither libc.so.6 nor libdl.so.2. */
void *real_dlsym(void *handle, const char *name);

/* The real dlsym and dlvsym as addresses, for the tail jumps of resolve.c. */
extern void *real_dlsym_address;
extern void *real_dlvsym_address;
bool real_find_loader(void);

#endif
