/* Hooks of multicast objects: an object takes no memory, and what is bound to it stays charged
 * until it is unbound or the object has ended (vmm.h). */
#include "hooks/hook.h"
#include "memory/vmm/vmm.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/cuda_vmm.h"

VGPU_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *object,
                                       const CUmulticastObjectProp *properties)
{
    NEEDS(cuMulticastCreate);
    if (object == NULL || region_open() == REGION_NONE)
        return real.cuMulticastCreate(object, properties);
    CUmemGenericAllocationHandle made = 0;
    struct vmm_record *record = vmm_object_begin();
    if (record == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuMulticastCreate(&made, properties);
    vmm_object_end(record, made, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        *object = made;
    return result;
}

VGPU_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t object_offset,
                                        CUmemGenericAllocationHandle handle, size_t offset,
                                        size_t bytes, unsigned long long flags)
{
    NEEDS(cuMulticastBindMem);
    if (region_open() == REGION_NONE)
        return real.cuMulticastBindMem(object, object_offset, handle, offset, bytes, flags);
    struct vmm_call call;
    if (!vmm_bind_begin(&call, object, object_offset, bytes, handle))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuMulticastBindMem(object, object_offset, handle, offset, bytes, flags);
    vmm_bind_end(&call, result == CUDA_SUCCESS);
    return result;
}

VGPU_EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device,
                                           size_t object_offset,
                                           CUmemGenericAllocationHandle handle, size_t offset,
                                           size_t bytes, unsigned long long flags)
{
    NEEDS(cuMulticastBindMem_v2);
    if (region_open() == REGION_NONE)
        return real.cuMulticastBindMem_v2(object, device, object_offset, handle, offset, bytes,
                                          flags);
    struct vmm_call call;
    if (!vmm_bind_begin(&call, object, object_offset, bytes, handle))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        real.cuMulticastBindMem_v2(object, device, object_offset, handle, offset, bytes, flags);
    vmm_bind_end(&call, result == CUDA_SUCCESS);
    return result;
}

VGPU_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t object_offset,
                                         CUdeviceptr address, size_t bytes,
                                         unsigned long long flags)
{
    NEEDS(cuMulticastBindAddr);
    if (region_open() == REGION_NONE)
        return real.cuMulticastBindAddr(object, object_offset, address, bytes, flags);
    struct vmm_call call;
    if (!vmm_bind_address_begin(&call, object, object_offset, bytes, address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuMulticastBindAddr(object, object_offset, address, bytes, flags);
    vmm_bind_address_end(&call, result == CUDA_SUCCESS);
    return result;
}

VGPU_EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device,
                                            size_t object_offset, CUdeviceptr address, size_t bytes,
                                            unsigned long long flags)
{
    NEEDS(cuMulticastBindAddr_v2);
    if (region_open() == REGION_NONE)
        return real.cuMulticastBindAddr_v2(object, device, object_offset, address, bytes, flags);
    struct vmm_call call;
    if (!vmm_bind_address_begin(&call, object, object_offset, bytes, address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        real.cuMulticastBindAddr_v2(object, device, object_offset, address, bytes, flags);
    vmm_bind_address_end(&call, result == CUDA_SUCCESS);
    return result;
}

VGPU_EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device,
                                       size_t object_offset, size_t bytes)
{
    NEEDS(cuMulticastUnbind);
    uint64_t before = vmm_now();
    CUresult result = real.cuMulticastUnbind(object, device, object_offset, bytes);
    if (result == CUDA_SUCCESS && region_open() == REGION_MAPPED)
        vmm_unbind(object, object_offset, bytes, devices_find(device), before);
    return result;
}
