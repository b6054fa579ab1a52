/* Who may access what is mapped. */
#include <sys/mman.h>

#include "vmm.h"

static bool any_access(const struct vmm_mapping *mapping)
{
    unsigned char any = mapping->host_access;
    for (int i = 0; i < SIM_MAX_GPUS; i++)
        any |= mapping->access[i];
    return any != 0;
}

/* The allocation map wants a context: nobody's, so the primary one of the device, begun or not. */
static struct CUctx_st *stand_in_context(const struct physical *physical)
{
    return physical->device ? &physical->device->primary : &driver.devices[0].primary;
}

/* Makes the pages and the allocation map say what the access flags say. Pages that a device may
 * only read can be written here: kernels compute nothing, and a host has no such flag. */
static bool apply_access(struct vmm_mapping *mapping)
{
    bool access = any_access(mapping);
    if (access == mapping->listed)
        return true;
    if (!access) { /* out of the map first: whoever finds it there may touch it */
        memory_forget(mapping->address);
        mapping->listed = false;
    }
    if (mprotect((void *)mapping->address, mapping->bytes,
                 access ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        return false;
    if (access &&
        !memory_insert_mapped(mapping->address, mapping->bytes, stand_in_context(mapping->physical),
                              mapping->physical->device ? &mapping->physical->backing : NULL))
        return false;
    mapping->listed = access;
    return true;
}

static CUresult set_access_locked(struct vmm_mapping *mapping, const CUmemAccessDesc *entry)
{
    const struct driver_device *owner = mapping->physical->device;
    int reachable = 1;
    if (entry->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        INVALID_IF(
            owner ||
            mapping->physical
                ->multicast); /* documented: only what lies on the host can be given to the host */
        mapping->host_access = (unsigned char)entry->flags;
    } else {
        if (owner && owner->ordinal != entry->location.id)
            cuDeviceCanAccessPeer(&reachable, entry->location.id, owner->ordinal);
        REFUSE_IF(!reachable, CUDA_ERROR_INVALID_DEVICE);
        mapping->access[entry->location.id] = (unsigned char)entry->flags;
    }
    return apply_access(mapping) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult check_location(const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
        location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_SUCCESS;
    INVALID_IF(location->type != CU_MEM_LOCATION_TYPE_DEVICE);
    return device_of(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *entries,
                        size_t count)
{
    CALL_TAKES(cuMemSetAccess);
    CUresult result = CUDA_SUCCESS;
    DRIVER_CHECK();
    INVALID_IF(!vmm_whole_granules(address, bytes) || !entries || count == 0);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = check_location(&entries[i].location);
        if (entries[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            entries[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            entries[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&vmm_mutex);
    if (!vmm_filled_locked(address, bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = address; result == CUDA_SUCCESS && at < address + bytes;) {
        struct vmm_mapping *mapping = vmm_mapping_locked(at);
        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
            result = set_access_locked(mapping, &entries[i]);
        at += mapping->bytes;
    }
    pthread_mutex_unlock(&vmm_mutex);
    return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr address)
{
    DRIVER_CHECK();
    INVALID_IF(!flags || !location);
    CUresult result = check_location(location);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&vmm_mutex);
    const struct vmm_mapping *mapping = vmm_mapping_locked(address);
    if (!mapping)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? mapping->access[location->id]
                                                               : mapping->host_access;
    pthread_mutex_unlock(&vmm_mutex);
    return result;
}
