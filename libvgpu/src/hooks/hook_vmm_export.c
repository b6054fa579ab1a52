/* Hooks of memory that is taken by handle and goes to other processes, and of memory that comes
 * from other interfaces: charged once in a container, as shared_memory.h tells.
 *
 * Nothing tells how large an imported piece is that nobody of this container exported. It is
 * charged by what is mapped of it, so its bytes are counted when they can be used. */
#include "hooks/hook.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/charge.h"
#include "memory/shared/shared_memory.h"
#include "memory/vmm/vmm.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define FABRIC_HANDLE_BYTES 64

/* ---- exports ---- */

/* The piece that the handle's memory is charged to, moved there if need be; NULL: it is charged to
 * this process, or not at all. */
static struct charge_owner *shared_of(CUmemGenericAllocationHandle handle, uint64_t key)
{
    struct charge charge;
    struct charge_owner *owner = NULL;
    uint64_t bytes;
    int device;
    if (!vmm_find(handle, &charge, &owner))
        return NULL;
    if (owner != NULL)
        return shared_memory_is(owner) ? owner : NULL;
    owner = shared_memory_export(&charge, key, NULL);
    if (owner == NULL)
        return NULL;
    if (vmm_hand_over(handle, owner, &bytes, &device)) {
        charge_cancel(&charge);
        return owner;
    }
    owner->release(owner, NULL); /* another thread was first */
    return vmm_find(handle, &charge, &owner) && shared_memory_is(owner) ? owner : NULL;
}

VGPU_EXPORT CUresult cuMemExportToShareableHandle(void *shareable,
                                                  CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type,
                                                  unsigned long long flags)
{
    NEEDS(cuMemExportToShareableHandle);
    CUresult result = real.cuMemExportToShareableHandle(shareable, handle, type, flags);
    if (result != CUDA_SUCCESS || shareable == NULL || region_open() != REGION_MAPPED)
        return result;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        struct charge_owner *owner = shared_of(handle, shared_memory_key_new());
        if (owner != NULL)
            shared_memory_mark_descriptor(owner, *(int *)shareable);
    } else if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        shared_of(handle, shared_memory_key_of_bytes(shareable, FABRIC_HANDLE_BYTES));
    }
    return result;
}

/* ---- imports ---- */

/* Joins the piece that a descriptor or the bytes of a handle stand for. */
static struct charge_owner *join(CUmemAllocationHandleType type, void *shareable,
                                 struct charge *charge)
{
    uint64_t key = 0;
    if (region_open() != REGION_MAPPED)
        return NULL;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC && shareable != NULL)
        key = shared_memory_key_of_bytes(shareable, FABRIC_HANDLE_BYTES);
    else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        key = shared_memory_key_of_descriptor((int)(intptr_t)shareable);
    return shared_memory_join(key, charge);
}

/* Index in `limits` of the device that the driver says the memory is of. It refuses to tell of a
 * multicast object, which is no memory. */
static int device_of(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp properties;
    if (real.cuMemGetAllocationPropertiesFromHandle == NULL ||
        real.cuMemGetAllocationPropertiesFromHandle(&properties, handle) != CUDA_SUCCESS)
        return CHARGE_NONE;
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CHARGE_NONE;
    return devices_find(properties.location.id);
}

VGPU_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                    void *shareable, CUmemAllocationHandleType type)
{
    NEEDS(cuMemImportFromShareableHandle);
    if (handle == NULL || region_open() == REGION_NONE)
        return real.cuMemImportFromShareableHandle(handle, shareable, type);
    struct charge charge = {.device = CHARGE_NONE, .kind = VGPU_KIND_VMM};
    CUmemGenericAllocationHandle made = 0;
    reconcile_quiet();
    struct charge_owner *owner = join(type, shareable, &charge);
    CUresult result = real.cuMemImportFromShareableHandle(&made, shareable, type);
    if (result == CUDA_SUCCESS && owner == NULL)
        charge.device = device_of(made);
    /* a second handle of the same memory needs no second charge */
    bool is_kept = result == CUDA_SUCCESS && vmm_adopt(made, &charge, owner);
    if (!is_kept && owner != NULL)
        owner->release(owner, NULL);
    if (result == CUDA_SUCCESS)
        *handle = made;
    return result;
}
