#include "vmm.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

pthread_mutex_t vmm_mutex = PTHREAD_MUTEX_INITIALIZER;
static void *pieces; /* of struct physical, by handle */
static CUmemGenericAllocationHandle last_handle;

static int compare_handles(const void *left, const void *right)
{
    CUmemGenericAllocationHandle one = *(const CUmemGenericAllocationHandle *)left;
    CUmemGenericAllocationHandle other = *(const CUmemGenericAllocationHandle *)right;
    return one < other ? -1 : one > other;
}

struct physical *physical_find_locked(CUmemGenericAllocationHandle handle)
{
    struct physical **node = tfind(&handle, &pieces, compare_handles);
    return node && (*node)->references ? *node : NULL;
}

static bool map_window(struct physical *physical)
{
    bool file = physical->file.descriptor >= 0;
    void *window =
        mmap(NULL, physical->bytes, PROT_NONE,
             MAP_SHARED | MAP_NORESERVE | (file ? 0 : MAP_ANONYMOUS), physical->file.descriptor, 0);
    physical->window = window == MAP_FAILED ? NULL : window;
    if (!physical->window)
        return false;
    /* a child may not use them, and would keep the bytes */
    madvise(window, physical->bytes, MADV_DONTFORK);
    return true;
}

struct physical *physical_make_locked(struct driver_device *device, uint64_t bytes,
                                      const CUmemAllocationProp *properties,
                                      struct shareable_file *file)
{
    struct physical *physical = calloc(1, sizeof *physical);
    if (physical) {
        *physical = (struct physical){.handle = ++last_handle,
                                      .bytes = bytes,
                                      .device = device,
                                      .properties = *properties,
                                      .file = *file,
                                      .backing = {.span_bytes = bytes, .device = device},
                                      .references = 1};
        if (map_window(physical) && tsearch(physical, &pieces, compare_handles))
            return physical;
        if (physical->window)
            munmap(physical->window, bytes);
        free(physical);
    }
    shareable_file_close(file);
    return NULL;
}

void physical_drop_locked(struct physical *physical)
{
    if (physical->references || physical->mappings)
        return;
    tdelete(physical, &pieces, compare_handles);
    backing_give_up(&physical->backing);
    munmap(physical->window, physical->bytes);
    shareable_file_close(&physical->file);
    if (physical->multicast)
        multicast_end_locked(physical->multicast);
    if (physical->shared_id)
        physical_end_shared_locked(physical);
    else if (physical->device)
        sim_client_release(physical->device->device, physical->bytes);
    free(physical);
}

/* ---- entry points ---------------------------------------------------------------------------- */

/* What a handle may be made of, and the device of it: NULL for host memory. */
static CUresult check_properties(const CUmemAllocationProp *properties,
                                 struct driver_device **device)
{
    *device = NULL;
    INVALID_IF(!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED);
    INVALID_IF(properties->requestedHandleTypes &
               ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
                 CU_MEM_HANDLE_TYPE_FABRIC)); /* those of another system */
    REFUSE_IF(properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC ||
                  properties->allocFlags.compressionType ||
                  properties->allocFlags.usage & ~CU_MEM_CREATE_USAGE_TILE_POOL,
              CUDA_ERROR_NOT_SUPPORTED);
    switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = device_of(properties->location.id);
        return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        /* memory of a NUMA node could be exported by the real driver: its holders are counted on
         * a device here, and it has none */
        return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS
               : properties->location.type == CU_MEM_LOCATION_TYPE_HOST ? CUDA_ERROR_INVALID_VALUE
                                                                        : CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags kind)
{
    struct driver_device *device;
    DRIVER_CHECK();
    INVALID_IF(!bytes || (kind != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                          kind != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CHECK(check_properties(properties, &device));
    *bytes = VMM_GRANULARITY_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    CALL_TAKES(cuMemCreate);
    struct driver_device *device;
    DRIVER_CHECK();
    INVALID_IF(!handle || flags || bytes == 0 || bytes % VMM_GRANULARITY_BYTES);
    CHECK(check_properties(properties, &device));
    REFUSE_IF(device && memory_charge(device, bytes) != 0, CUDA_ERROR_OUT_OF_MEMORY);
    struct shareable_file file = {.descriptor = -1};
    struct physical *physical = NULL;
    pthread_mutex_lock(&vmm_mutex);
    if (properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
        shareable_file_create(&file, bytes + SIM_PAGE)) /* the record's page behind them */
        physical = physical_make_locked(device, bytes, properties, &file);
    if (physical)
        *handle = physical->handle;
    pthread_mutex_unlock(&vmm_mutex);
    if (!physical && device)
        sim_client_release(device->device, bytes);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CALL_TAKES(cuMemRelease);
    DRIVER_CHECK();
    pthread_mutex_lock(&vmm_mutex);
    struct physical *physical = physical_find_locked(handle);
    if (physical) {
        physical->references--;
        physical_drop_locked(physical);
    }
    pthread_mutex_unlock(&vmm_mutex);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle handle)
{
    DRIVER_CHECK();
    INVALID_IF(!properties);
    pthread_mutex_lock(&vmm_mutex);
    struct physical *physical = physical_find_locked(handle);
    bool memory = physical && !physical->multicast;
    if (memory)
        *properties = physical->properties;
    pthread_mutex_unlock(&vmm_mutex);
    return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    DRIVER_CHECK();
    INVALID_IF(!handle);
    pthread_mutex_lock(&vmm_mutex);
    struct physical *physical = vmm_physical_locked((uint64_t)address);
    if (physical) {
        physical->references++;
        *handle = physical->handle;
    }
    pthread_mutex_unlock(&vmm_mutex);
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
