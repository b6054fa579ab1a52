/* Hooks of start and lookup: cuInit and cuGetProcAddress. */
#include "driver/export.h"
#include "driver/real.h"
#include "hooks/resolve.h"
#include "slice/mps_limits.h"
#include "slice/region.h"

VGPU_EXPORT CUresult cuInit(unsigned int flags)
{
    if (!real_load_cuda() || real.cuInit == NULL)
        return CUDA_ERROR_NO_DEVICE;
    enum region_state state = region_open();
    region_tell_if_absent(); /* here: a program that asks only NVML computes nothing */
    if (state == REGION_REFUSE)
        return CUDA_ERROR_NO_DEVICE; /* said why on stderr */
    if (state == REGION_MAPPED) {
        mps_limits_apply(region_limits(), region_device_count(), region_is_managed());
        region_open_lifeline(); /* the driver opens its files now, which children inherit */
    }
    return real.cuInit(flags);
}

VGPU_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version,
                                      cuuint64_t flags)
{
    if (!real_load_cuda() || real.cuGetProcAddress == NULL)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real.cuGetProcAddress(name, function, version, flags);
    if (result == CUDA_SUCCESS && function != NULL)
        *function = resolve_replacement(name, *function);
    return result;
}

VGPU_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
                                         cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    if (!real_load_cuda() || real.cuGetProcAddress_v2 == NULL)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real.cuGetProcAddress_v2(name, function, version, flags, status);
    if (result == CUDA_SUCCESS && function != NULL)
        *function = resolve_replacement(name, *function);
    return result;
}
