/*
 * Multicast objects. One is a piece without memory of its own, so that handles, mappings and access
 * go as for memory; it costs nothing. What is bound to it lives until it is unbound, or until the
 * object has neither handle nor mapping left. What is written through an object goes to none of
 * what is bound to it: no kernel computes here, and a copy to it has a place of its own.
 *
 * A GPU that is alone in its machine does none of it, as seen on an H100. A real driver waits in a
 * call that needs the whole team for the devices that others add; here it is refused.
 */
#include <stdlib.h>

#include "multicast.h"

#define MULTICAST_MAJOR 9 /* compute capability of the first devices that have it */

bool multicast_supported(const struct driver_device *device)
{
    return device->identity->profile.compute_major >= MULTICAST_MAJOR &&
           sim_machine_gpu_count(driver.machine) > 1;
}

bool multicast_complete(const struct multicast *multicast)
{
    uint64_t added = __atomic_load_n(&multicast->team->added, __ATOMIC_ACQUIRE);
    return (uint64_t)__builtin_popcountll(added) == multicast->team->size;
}

static void unbind_locked(struct binding **at)
{
    struct binding *binding = *at;
    *at = binding->next;
    binding->physical->mappings--;
    physical_drop_locked(binding->physical);
    free(binding);
}

void multicast_end_locked(struct multicast *multicast)
{
    while (multicast->bindings)
        unbind_locked(&multicast->bindings);
    if (multicast->page)
        multicast_end_share_locked(multicast);
    free(multicast);
}

/* The object that a handle is of; NULL: none. */
static struct multicast *find_locked(CUmemGenericAllocationHandle handle, uint64_t *bytes)
{
    const struct physical *physical = physical_find_locked(handle);
    if (physical)
        *bytes = physical->bytes;
    return physical ? physical->multicast : NULL;
}

/* ---- objects --------------------------------------------------------------------------------- */

static CUresult check_properties(const CUmulticastObjectProp *properties)
{
    bool able = false;
    INVALID_IF(!properties || !properties->numDevices || properties->flags || !properties->size ||
               properties->size % VMM_GRANULARITY_BYTES);
    for (int i = 0; i < driver.device_count; i++)
        able |= multicast_supported(&driver.devices[i]);
    REFUSE_IF(!able || properties->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
              CUDA_ERROR_NOT_SUPPORTED);
    /* this process may see only some of the devices that other processes add */
    return properties->numDevices <= sim_machine_gpu_count(driver.machine)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastGetGranularity(size_t *bytes, const CUmulticastObjectProp *properties,
                                   CUmulticastGranularity_flags kind)
{
    DRIVER_CHECK();
    INVALID_IF(!bytes || (kind != CU_MULTICAST_GRANULARITY_MINIMUM &&
                          kind != CU_MULTICAST_GRANULARITY_RECOMMENDED));
    CUmulticastObjectProp asked = properties ? *properties : (CUmulticastObjectProp){0};
    asked.size = VMM_GRANULARITY_BYTES; /* which the caller may not know yet */
    CHECK(check_properties(&asked));
    *bytes = VMM_GRANULARITY_BYTES;
    return CUDA_SUCCESS;
}

static struct multicast *make(const CUmulticastObjectProp *properties, struct shareable_file *file)
{
    struct multicast *multicast = calloc(1, sizeof *multicast);
    if (!multicast)
        return NULL;
    multicast->own_team.size = properties->numDevices;
    multicast->team = &multicast->own_team;
    if (properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE ||
        multicast_share(multicast, file, properties->size, properties->numDevices))
        return multicast;
    free(multicast);
    return NULL;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                           const CUmulticastObjectProp *properties)
{
    struct shareable_file file = {.descriptor = -1};
    DRIVER_CHECK();
    CHECK(handle ? check_properties(properties) : CUDA_ERROR_INVALID_VALUE);
    const CUmemAllocationProp none = {.type = CU_MEM_ALLOCATION_TYPE_INVALID,
                                      .requestedHandleTypes =
                                          (CUmemAllocationHandleType)properties->handleTypes};
    struct multicast *multicast = make(properties, &file);
    REFUSE_IF(!multicast, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&vmm_mutex);
    if (multicast->page)
        multicast_list_locked(multicast);
    struct physical *physical = physical_make_locked(NULL, properties->size, &none, &file);
    if (physical) {
        physical->multicast = multicast;
        multicast->physical = physical;
        *handle = physical->handle;
    } else {
        multicast_end_locked(multicast);
    }
    pthread_mutex_unlock(&vmm_mutex);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Adds the device's bit, unless it is there or the team is complete. */
static bool add(const struct multicast *multicast, const struct driver_device *device)
{
    uint64_t bit = 1ull << device->device->index;
    uint64_t added = __atomic_load_n(&multicast->team->added, __ATOMIC_ACQUIRE);
    do {
        if (added & bit || (uint64_t)__builtin_popcountll(added) >= multicast->team->size)
            return false;
    } while (!__atomic_compare_exchange_n(&multicast->team->added, &added, added | bit, false,
                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return true;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal)
{
    uint64_t bytes;
    DRIVER_CHECK();
    const struct driver_device *device = device_of(ordinal);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    REFUSE_IF(!multicast_supported(device), CUDA_ERROR_NOT_SUPPORTED);
    pthread_mutex_lock(&vmm_mutex);
    const struct multicast *multicast = find_locked(handle, &bytes);
    CUresult result = multicast && add(multicast, device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&vmm_mutex);
    return result;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool lies_in(uint64_t offset, uint64_t bytes, uint64_t whole_bytes)
{
    return bytes && offset % VMM_GRANULARITY_BYTES == 0 && bytes % VMM_GRANULARITY_BYTES == 0 &&
           offset <= whole_bytes && bytes <= whole_bytes - offset;
}

static bool overlaps(const struct binding *binding, const struct driver_device *device,
                     uint64_t offset, uint64_t bytes)
{
    return binding->physical->device == device && offset < binding->offset + binding->bytes &&
           binding->offset < offset + bytes;
}

static bool is_added(const struct multicast *multicast, const struct driver_device *device)
{
    uint64_t added = __atomic_load_n(&multicast->team->added, __ATOMIC_ACQUIRE);
    return added >> device->device->index & 1;
}

static CUresult bind_locked(CUmemGenericAllocationHandle handle, uint64_t offset,
                            struct physical *physical, uint64_t bytes)
{
    uint64_t whole_bytes;
    struct multicast *multicast = find_locked(handle, &whole_bytes);
    INVALID_IF(!multicast || !physical || !physical->device ||
               !lies_in(offset, bytes, whole_bytes));
    REFUSE_IF(!multicast_complete(multicast), CUDA_ERROR_ILLEGAL_STATE);
    REFUSE_IF(!is_added(multicast, physical->device), CUDA_ERROR_INVALID_DEVICE);
    for (struct binding *binding = multicast->bindings; binding; binding = binding->next)
        INVALID_IF(overlaps(binding, physical->device, offset, bytes));
    struct binding *binding = malloc(sizeof *binding);
    REFUSE_IF(!binding, CUDA_ERROR_OUT_OF_MEMORY);
    *binding = (struct binding){physical, offset, bytes, multicast->bindings};
    multicast->bindings = binding;
    physical->mappings++;
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    DRIVER_CHECK();
    INVALID_IF(flags);
    pthread_mutex_lock(&vmm_mutex);
    struct physical *physical = physical_find_locked(memory);
    CUresult result = physical && lies_in(memory_offset, bytes, physical->bytes)
                          ? bind_locked(handle, offset, physical, bytes)
                          : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&vmm_mutex);
    return result;
}

/* Of memory that cuMemMap put there; that of pools is bound by a real driver only. */
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    DRIVER_CHECK();
    INVALID_IF(flags);
    pthread_mutex_lock(&vmm_mutex);
    const struct vmm_mapping *mapping = vmm_mapping_locked(address);
    CUresult result = mapping && lies_in(address - mapping->address, bytes, mapping->bytes)
                          ? bind_locked(handle, offset, mapping->physical, bytes)
                          : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&vmm_mutex);
    return result;
}

/* The forms of CUDA 13.1 name the device that is to reach the memory: here the one that has it. */
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice ordinal, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset,
                               size_t bytes, unsigned long long flags)
{
    DRIVER_CHECK();
    REFUSE_IF(!device_of(ordinal), CUDA_ERROR_INVALID_DEVICE);
    return cuMulticastBindMem(handle, offset, memory, memory_offset, bytes, flags);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice ordinal,
                                size_t offset, CUdeviceptr address, size_t bytes,
                                unsigned long long flags)
{
    DRIVER_CHECK();
    REFUSE_IF(!device_of(ordinal), CUDA_ERROR_INVALID_DEVICE);
    return cuMulticastBindAddr(handle, offset, address, bytes, flags);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice ordinal, size_t offset,
                           size_t bytes)
{
    uint64_t whole_bytes;
    DRIVER_CHECK();
    const struct driver_device *device = device_of(ordinal);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&vmm_mutex);
    struct multicast *multicast = find_locked(handle, &whole_bytes);
    for (struct binding **at = multicast ? &multicast->bindings : NULL; at && *at;
         at = &(*at)->next)
        if ((*at)->physical->device == device && (*at)->offset == offset && (*at)->bytes == bytes) {
            unbind_locked(at);
            result = CUDA_SUCCESS;
            break;
        }
    pthread_mutex_unlock(&vmm_mutex);
    return result;
}
