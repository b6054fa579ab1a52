/* Hooks of start and lookup: cuInit and cuGetProcAddress. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "limits_file.h"
#include "log.h"
#include "real.h"
#include "region.h"
#include "resolve.h"

#define MIB (1024u * 1024u)
#define VALUE_BYTES 2048

/* Sets a variable that differs. An honest program, whose environment came with its container, sees
 * no setenv here (which is unsafe beside threads that read the environment). */
static void set_variable(const char *name, const char *value)
{
    const char *now = getenv(name);
    if (value[0] == '\0' || (now != NULL && strcmp(now, value) == 0))
        return;
    log_line(LOG_INFO, "%s is %s, the slice says %s: set", name, now != NULL ? now : "not set",
             value);
    setenv(name, value, 1);
}

/* MPS reads its variables in cuInit, so the last word is ours, just before it. */
static void apply_mps(void)
{
    const void *limits = region_limits();
    const struct vgpu_device_limit *first = limits_device(limits, 0);
    char value[VALUE_BYTES];
    /* The slice names the directory as the container sees it. Where nothing was mounted there,
     * whoever started the process knows better. */
    if (region_is_managed() || getenv("CUDA_MPS_PIPE_DIRECTORY") == NULL)
        set_variable("CUDA_MPS_PIPE_DIRECTORY", first->mps_pipe_directory);
    if (first->mps_thread_percentage > 0) {
        snprintf(value, sizeof value, "%u", first->mps_thread_percentage);
        set_variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value);
    }
    size_t used = 0;
    value[0] = '\0';
    for (uint32_t i = 0; i < region_device_count() && used + 32 < sizeof value; i++) {
        uint64_t bytes = limits_device(limits, i)->mps_pinned_bytes;
        if (bytes > 0)
            used += (size_t)snprintf(value + used, sizeof value - used, "%s%u=%lluM",
                                     used > 0 ? "," : "", i, (unsigned long long)(bytes / MIB));
    }
    set_variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", value);
}

VGPU_EXPORT CUresult cuInit(unsigned int flags)
{
    if (!real_load_cuda() || real.cuInit == NULL)
        return CUDA_ERROR_NO_DEVICE;
    enum region_state state = region_open();
    if (state == REGION_REFUSE)
        return CUDA_ERROR_NO_DEVICE; /* said why on stderr */
    if (state == REGION_MAPPED && region_family() == VGPU_FAMILY_MPS && region_device_count() > 0)
        apply_mps();
    return real.cuInit(flags);
}

VGPU_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version,
                                      cuuint64_t flags)
{
    if (!real_load_cuda() || real.cuGetProcAddress == NULL)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real.cuGetProcAddress(name, function, version, flags);
    if (result == CUDA_SUCCESS && function != NULL)
        *function = resolve_replacement(*function);
    return result;
}

VGPU_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
                                         cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    if (!real_load_cuda() || real.cuGetProcAddress_v2 == NULL)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real.cuGetProcAddress_v2(name, function, version, flags, status);
    if (result == CUDA_SUCCESS && function != NULL)
        *function = resolve_replacement(*function);
    return result;
}
