/* The GPUs of throttle_model.h: streams, what was put onto them, and when each of it ends. Called with
 * the time at which the GPU has it. */
#ifndef VGPU_THROTTLE_MODEL_GPU_H
#define VGPU_THROTTLE_MODEL_GPU_H

#include "throttle_model.h"

#define GPU_NEVER INT64_MAX

enum gpu_work { GPU_KERNEL, GPU_SPIN, GPU_COLLECTIVE, GPU_EVENT, GPU_WAIT, GPU_WRITE };

struct CUevent_st {
    int64_t at_ns; /* GPU_NEVER: not reached, as far as is known */
};

struct gpu_operation {
    enum gpu_work what;
    int64_t submitted_ns, gpu_ns;
    int word;
    int64_t value; /* of the word; of a collective, which one: 0 before it has begun */
    struct CUevent_st *event;
};

CUstream gpu_stream(uint32_t device);
void gpu_end_stream(CUstream stream);
uint32_t gpu_device_of(CUstream stream);
void gpu_submit(CUstream stream, struct gpu_operation operation);
void gpu_host_writes(int word, int64_t value, int64_t at_ns);
/* When all that was put onto a stream is done, as far as is known; else GPU_NEVER. */
int64_t gpu_stream_end_ns(CUstream stream);

#endif
