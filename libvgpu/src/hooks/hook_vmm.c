/* Hooks of memory in separate physical and virtual parts. cuMemCreate is charged like any
 * allocation; vmm.h keeps it charged until nothing refers to the memory and nothing uses it.
 *
 * The program's own variables are read once and written last: another thread may change them while
 * the driver reads them. */
#include "hooks/hook.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/charge.h"
#include "memory/vmm/vmm.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"
#include "vgpu/cuda_vmm.h"

/* The device whose memory it is; DEVICE_UNKNOWN for the host's, and where only the driver knows
 * what is wrong. A kind of place that we do not know is one of the device it names. */
static int device_of(const CUmemLocation *location)
{
    int device = location->id;
    switch ((unsigned int)location->type) {
    case CU_MEM_LOCATION_TYPE_INVALID:
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
    case CU_MEM_LOCATION_TYPE_INVISIBLE:
        return DEVICE_UNKNOWN;
    case CU_MEM_LOCATION_TYPE_DEVICE:
        break;
    default:
        device = location->localized.deviceId;
    }
    return region_open() == REGION_MAPPED ? devices_find(device) : DEVICE_NOT_OURS;
}

VGPU_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                 const CUmemAllocationProp *properties, unsigned long long flags)
{
    NEEDS(cuMemCreate);
    if (handle == NULL || properties == NULL || region_open() == REGION_NONE)
        return real.cuMemCreate(handle, bytes, properties, flags);
    CUmemAllocationProp wanted = *properties;
    CUmemGenericAllocationHandle made = 0;
    struct charge charge = {.device = CHARGE_NONE, .kind = VGPU_KIND_VMM, .bytes = bytes};
    int device = device_of(&wanted.location);
    reconcile_quiet();
    if (device != DEVICE_UNKNOWN &&
        charge_reserve(&charge, device, VGPU_KIND_VMM, bytes) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct vmm_record *record = vmm_create_begin(&charge);
    if (record == NULL) {
        charge_cancel(&charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = real.cuMemCreate(&made, bytes, &wanted, flags);
    vmm_create_end(record, made, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        *handle = made;
    return result;
}

VGPU_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    NEEDS(cuMemRelease);
    struct vmm_record *record = vmm_release_begin(handle);
    CUresult result = real.cuMemRelease(handle);
    vmm_release_end(record, result == CUDA_SUCCESS);
    reconcile_quiet();
    return result;
}

VGPU_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                                 void *address)
{
    NEEDS(cuMemRetainAllocationHandle);
    if (handle == NULL || region_open() == REGION_NONE)
        return real.cuMemRetainAllocationHandle(handle, address);
    struct vmm_call call;
    CUmemGenericAllocationHandle found = 0;
    if (!vmm_retain_begin(&call, (uint64_t)(uintptr_t)address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuMemRetainAllocationHandle(&found, address);
    vmm_retain_end(&call, found, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        *handle = found;
    return result;
}

/* An imported piece of unknown size is charged by what is mapped of it: reserves what `bytes` are
 * more than it is charged, which is noted in *before. False: that does not fit. */
static bool charge_import(CUmemGenericAllocationHandle handle, uint64_t bytes, uint64_t *before,
                          struct charge *more)
{
    struct charge known;
    *more = (struct charge){.device = CHARGE_NONE};
    if (!vmm_find_unsized(handle, &known) || known.bytes >= bytes)
        return true;
    *before = known.bytes;
    if (charge_reserve(more, known.device, VGPU_KIND_VMM, bytes - known.bytes) != CUDA_SUCCESS)
        return false;
    if (!vmm_set_charge(handle, known.bytes, bytes)) {
        charge_cancel(more); /* another thread was first */
        more->device = CHARGE_NONE;
    }
    return true;
}

/* The driver mapped nothing. What another thread has added to since stays. */
static void cancel_import(CUmemGenericAllocationHandle handle, uint64_t before,
                          const struct charge *more)
{
    if (more->device >= 0 && vmm_set_charge(handle, before + more->bytes, before))
        charge_cancel(more);
}

VGPU_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    NEEDS(cuMemMap);
    if (region_open() == REGION_NONE)
        return real.cuMemMap(address, bytes, offset, handle, flags);
    struct vmm_call call;
    struct charge more;
    uint64_t before = 0;
    if (!vmm_use_begin(&call, (struct vmm_place){VMM_MAPPING, 0, address, bytes}, handle))
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* after the use is written down: nobody cancels what this thread counts on */
    if (!charge_import(handle, bytes, &before, &more)) {
        vmm_use_end(&call, false);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = real.cuMemMap(address, bytes, offset, handle, flags);
    if (result != CUDA_SUCCESS)
        cancel_import(handle, before, &more);
    vmm_use_end(&call, result == CUDA_SUCCESS);
    return result;
}

VGPU_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    NEEDS(cuMemUnmap);
    uint64_t before = vmm_now();
    CUresult result = real.cuMemUnmap(address, bytes);
    if (result == CUDA_SUCCESS)
        vmm_unmapped(address, bytes, before);
    return result;
}
