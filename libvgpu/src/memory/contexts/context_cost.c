#include "memory/contexts/context_cost.h"

#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "driver/capture.h"
#include "driver/driver_processes.h"
#include "driver/real.h"
#include "slice/limits_file.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define FRESH_NS 1000000000u
#define ROUGH ((uint64_t)VGPU_CONTEXT_ROUGH)

/* ---- what the container knows ---- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool context_cost_estimate(uint32_t device, uint64_t *bytes)
{
    struct vgpu_usage_device *shared = region_shared(device);
    bool is_measured = __atomic_load_n(&shared->context_measured_ns, __ATOMIC_ACQUIRE) != 0;
    *bytes = is_measured ? __atomic_load_n(&shared->context_bytes, __ATOMIC_RELAXED)
                         : limits_device(region_limits(), device)->context_bytes;
    return is_measured || *bytes > 0;
}

bool context_cost_is_rough(uint32_t device)
{
    uint64_t measured_ns =
        __atomic_load_n(&region_shared(device)->context_measured_ns, __ATOMIC_ACQUIRE);
    return measured_ns & ROUGH;
}

bool context_cost_is_likely(uint32_t device, uint64_t bytes)
{
    uint64_t told_bytes = limits_device(region_limits(), device)->context_bytes;
    return told_bytes == 0 || (bytes > 0 && bytes / 2 <= told_bytes);
}

enum context_cost_quality context_cost_news(uint32_t device)
{
    struct vgpu_usage_device *shared = region_shared(device);
    uint64_t measured_ns = __atomic_load_n(&shared->context_measured_ns, __ATOMIC_ACQUIRE);
    uint64_t now = now_ns();
    if (measured_ns == 0 || measured_ns > now || now - measured_ns >= FRESH_NS)
        return CONTEXT_COST_UNKNOWN;
    return measured_ns & ROUGH ? CONTEXT_COST_ROUGH : CONTEXT_COST_EXACT;
}

void context_cost_keep(uint32_t device, uint64_t bytes)
{
    struct vgpu_usage_device *shared = region_shared(device);
    __atomic_store_n(&shared->context_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->context_measured_ns, now_ns() & ~ROUGH, __ATOMIC_RELEASE);
}

uint64_t context_cost_keep_rough(uint32_t device, uint64_t bytes)
{
    struct vgpu_usage_device *shared = region_shared(device);
    uint64_t unmeasured_ns = 0;
    bool is_first = __atomic_load_n(&shared->context_measured_ns, __ATOMIC_ACQUIRE) == 0;
    uint64_t kept = __atomic_load_n(&shared->context_bytes, __ATOMIC_RELAXED);
    while ((is_first && kept == 0 && bytes > 0) || bytes < kept)
        if (__atomic_compare_exchange_n(&shared->context_bytes, &kept, bytes, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            kept = bytes;
    __atomic_compare_exchange_n(&shared->context_measured_ns, &unmeasured_ns, now_ns() | ROUGH,
                                false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    return kept;
}

/* ---- what NVML knows ---- */

/* Takes note of a process that NVML listed if it has our pid; the context is a sample. */
static void note_own(void *context, unsigned int pid, unsigned long long bytes)
{
    struct context_cost_sample *sample = context;
    if (pid != (unsigned int)getpid() || bytes == DRIVER_BYTES_UNKNOWN)
        return;
    if (sample->own_count++ == 0 || bytes < sample->own_bytes)
        sample->own_bytes = bytes;
}

static bool gpu_bytes(nvmlDevice_t handle, uint64_t *bytes)
{
    nvmlMemory_t memory;
    if (real.nvmlDeviceGetMemoryInfo == NULL ||
        real.nvmlDeviceGetMemoryInfo(handle, &memory) != NVML_SUCCESS)
        return false;
    *bytes = memory.used;
    return true;
}

/* Set for good when the program's end begins. Destructors of libraries free memory after NVML's own has
 * run, and to call NVML then would end the program. */
static bool is_over; /* atomic */

static void end(void)
{
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
}

bool context_cost_is_over(void)
{
    CUcontext current;
    if (real.cuCtxGetCurrent != NULL && real.cuCtxGetCurrent(&current) == CUDA_ERROR_DEINITIALIZED)
        end();
    return __atomic_load_n(&is_over, __ATOMIC_RELAXED);
}

/* NVML takes milliseconds to begin, so that it is begun once; it counts, and the program's own end leaves
 * it open. Racing first callers begin it twice. */
static bool is_begun;                          /* atomic */
static bool is_end_watched;                    /* atomic; a forked child inherits the handler */
static nvmlDevice_t handles[VGPU_MAX_DEVICES]; /* atomic */

static nvmlDevice_t handle_of(uint32_t device)
{
    nvmlDevice_t handle = __atomic_load_n(&handles[device], __ATOMIC_ACQUIRE);
    if (handle != NULL)
        return handle;
    if (!real_load_nvml() || real.nvmlInit_v2 == NULL || real.nvmlDeviceGetHandleByUUID == NULL)
        return NULL;
    if (!__atomic_load_n(&is_begun, __ATOMIC_ACQUIRE)) {
        if (real.nvmlInit_v2() != NVML_SUCCESS)
            return NULL;
        /* behind NVML's own beginning, so as to be called before what that registers */
        if (!__atomic_exchange_n(&is_end_watched, true, __ATOMIC_RELAXED))
            atexit(end);
        __atomic_store_n(&is_begun, true, __ATOMIC_RELEASE);
    }
    const char *uuid = limits_device(region_limits(), device)->uuid;
    if (real.nvmlDeviceGetHandleByUUID(uuid, &handle) != NVML_SUCCESS)
        return NULL;
    __atomic_store_n(&handles[device], handle, __ATOMIC_RELEASE);
    return handle;
}

void context_cost_after_fork(void)
{
    is_begun = false;
    for (uint32_t device = 0; device < VGPU_MAX_DEVICES; device++)
        handles[device] = NULL;
}

struct context_cost_sample context_cost_sample_own(uint32_t device)
{
    struct context_cost_sample sample = {0};
    nvmlDevice_t handle = context_cost_is_over() ? NULL : handle_of(device);
    if (handle != NULL && driver_processes(handle, note_own, &sample) == NVML_ERROR_UNINITIALIZED)
        context_cost_after_fork(); /* the program ended NVML more often than it began it */
    return sample;
}

struct context_cost_sample context_cost_sample(uint32_t device)
{
    struct context_cost_sample sample = context_cost_sample_own(device);
    nvmlDevice_t handle = context_cost_is_over() ? NULL : handle_of(device);
    sample.is_gpu_known = handle != NULL && gpu_bytes(handle, &sample.gpu_bytes);
    return sample;
}

bool context_cost_gpu_in_use(uint64_t *bytes)
{
    size_t free_bytes, total_bytes;
    struct capture_pause pause = capture_pause();
    CUresult result = real.cuMemGetInfo_v2 != NULL ? real.cuMemGetInfo_v2(&free_bytes, &total_bytes)
                                                   : CUDA_ERROR_NOT_SUPPORTED;
    capture_resume(pause);
    if (result == CUDA_SUCCESS)
        *bytes = total_bytes - free_bytes;
    return result == CUDA_SUCCESS;
}

enum context_cost_quality context_cost_growth(const struct context_cost_sample *before,
                                              const struct context_cost_sample *after,
                                              bool had_context, uint64_t *bytes)
{
    bool is_told_apart = after->own_count == 1 && (before->own_bytes == 0 || had_context) &&
                         after->own_bytes > before->own_bytes;
    if (is_told_apart) {
        *bytes = after->own_bytes - before->own_bytes;
        return CONTEXT_COST_EXACT;
    }
    uint64_t grown =
        after->gpu_bytes > before->gpu_bytes ? after->gpu_bytes - before->gpu_bytes : 0;
    bool is_gpu_known = before->is_gpu_known && after->is_gpu_known;
    bool is_one_of_them = after->own_count > before->own_count && !had_context;
    if (is_one_of_them && (!is_gpu_known || after->own_bytes < grown)) {
        *bytes = after->own_bytes; /* each of them holds a context */
        return CONTEXT_COST_ROUGH;
    }
    *bytes = grown;
    return is_gpu_known ? CONTEXT_COST_ROUGH : CONTEXT_COST_UNKNOWN;
}
