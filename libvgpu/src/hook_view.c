/* Hooks that show the slice in place of the GPU: memory totals of the driver and of NVML. */
#include "devices.h"
#include "export.h"
#include "ledger.h"
#include "real.h"
#include "region.h"

/* What a program of this container should see of one device. */
struct view {
    uint64_t total_bytes;
    uint64_t used_bytes;
    uint64_t free_bytes;
};

/* The slice of `device` (an index in `limits`, or not ours: nothing). Free is also bounded by what
 * the GPU itself has left. */
static struct view view_of(int device, uint64_t physical_free_bytes)
{
    struct view view = {0};
    if (device < 0)
        return view;
    struct ledger ledger = region_ledger((uint32_t)device);
    ledger_sweep(&ledger); /* programs size their pools by what this shows */
    view.total_bytes = ledger_limit_bytes(&ledger);
    view.used_bytes = ledger_used_bytes(&ledger);
    if (view.used_bytes < view.total_bytes)
        view.free_bytes = view.total_bytes - view.used_bytes;
    if (view.free_bytes > physical_free_bytes)
        view.free_bytes = physical_free_bytes;
    return view;
}

VGPU_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    if (!real_load_cuda() || real.cuMemGetInfo_v2 == NULL)
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = real.cuMemGetInfo_v2(free_bytes, total_bytes);
    if (result != CUDA_SUCCESS || region_open() != REGION_MAPPED)
        return result;
    struct view view = view_of(devices_current(), *free_bytes);
    *free_bytes = view.free_bytes;
    *total_bytes = view.total_bytes;
    return CUDA_SUCCESS;
}

VGPU_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    if (!real_load_cuda() || real.cuDeviceTotalMem_v2 == NULL)
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = real.cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS && region_open() == REGION_MAPPED)
        *bytes = view_of(devices_find(device), 0).total_bytes;
    return result;
}

/* The forms of CUDA 3 and before say at most what 32 bits hold, as the driver does. */
static unsigned int narrow(uint64_t bytes)
{
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)bytes;
}

VGPU_EXPORT CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    if (!real_load_cuda() || real.cuMemGetInfo == NULL)
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = real.cuMemGetInfo(free_bytes, total_bytes);
    if (result != CUDA_SUCCESS || region_open() != REGION_MAPPED)
        return result;
    struct view view = view_of(devices_current(), *free_bytes);
    *free_bytes = narrow(view.free_bytes);
    *total_bytes = narrow(view.total_bytes);
    return CUDA_SUCCESS;
}

VGPU_EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    if (!real_load_cuda() || real.cuDeviceTotalMem == NULL)
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = real.cuDeviceTotalMem(bytes, device);
    if (result == CUDA_SUCCESS && region_open() == REGION_MAPPED)
        *bytes = narrow(view_of(devices_find(device), 0).total_bytes);
    return result;
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    if (!real_load_nvml() || real.nvmlDeviceGetMemoryInfo == NULL)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t result = real.nvmlDeviceGetMemoryInfo(device, memory);
    if (result != NVML_SUCCESS || region_open() != REGION_MAPPED)
        return result;
    struct view view = view_of(devices_find_nvml(device), memory->free);
    memory->total = view.total_bytes;
    memory->used = view.used_bytes;
    memory->free = view.free_bytes;
    return NVML_SUCCESS;
}

VGPU_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    if (!real_load_nvml() || real.nvmlDeviceGetMemoryInfo_v2 == NULL)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t result = real.nvmlDeviceGetMemoryInfo_v2(device, memory);
    if (result != NVML_SUCCESS || region_open() != REGION_MAPPED)
        return result;
    struct view view = view_of(devices_find_nvml(device), memory->free);
    memory->total = view.total_bytes;
    memory->reserved = 0; /* the card's own reserve is nobody's slice */
    memory->used = view.used_bytes;
    memory->free = view.free_bytes;
    return NVML_SUCCESS;
}
