/* What can be asked of a pointer, and set. */
#include "ipc.h"
#include "vmm.h"

/* An allocation, or a place in a reservation of addresses, which may be mapped to nothing. */
struct pointee {
    struct allocation allocation;
    struct vmm_view view;
    bool reserved;                /* `view` holds; else `allocation` */
    bool known;                   /* `allocation` holds */
    struct driver_device *device; /* NULL: the host's */
    uint64_t start, bytes;        /* of the allocation, or the mapping */
};

static bool find_pointee(CUdeviceptr address, struct pointee *pointee)
{
    *pointee = (struct pointee){.reserved = false};
    pointee->reserved = vmm_view(address, &pointee->view);
    pointee->known = memory_find(address, 1, &pointee->allocation);
    const struct allocation *allocation = &pointee->allocation;
    if (pointee->reserved) {
        pointee->device = pointee->view.device;
        pointee->start = pointee->view.mapping.address;
        pointee->bytes = pointee->view.mapping.bytes;
    } else if (pointee->known) {
        pointee->device = allocation_device(allocation);
        pointee->start = allocation->address;
        pointee->bytes = allocation->bytes;
    }
    return pointee->reserved || pointee->known;
}

/* The address says what is freed; whatever context is current, or none, has no say in it. */
CUresult memory_check_free(uint64_t address)
{
    DRIVER_CHECK();
    struct allocation found;
    bool known = memory_find(address, 1, &found);
    if (known && found.context && found.context->alive)
        return context_check(found.context, found.context->id);
    return sim_machine_faulty(driver.machine) ? fault_answer(NULL) : CUDA_SUCCESS;
}

/* Memory of handles and pools is no context's. */
static CUcontext context_of(const struct pointee *pointee)
{
    return pointee->reserved || pointee->allocation.pool ? NULL : pointee->allocation.context;
}

/* An answer about the range itself; an address that is only reserved has this much to tell. */
static CUresult answer_range(void *value, CUpointer_attribute attribute,
                             const struct pointee *pointee)
{
    bool mapped = !pointee->reserved || pointee->view.mapped;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = pointee->reserved ? pointee->view.reserved_address : pointee->start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = pointee->reserved ? pointee->view.reserved_bytes : pointee->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)value = mapped;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = pointee->start;
        return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = pointee->bytes;
        return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* Numbers of memory that is mapped are unique in the process: handles count apart from others. */
#define HANDLE_ID (1ull << 63)

static CUresult answer_memory(void *value, CUpointer_attribute attribute, CUdeviceptr address,
                              const struct pointee *pointee)
{
    const struct allocation *allocation = &pointee->allocation;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = context_of(pointee);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = pointee->device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        INVALID_IF(pointee->device && !(pointee->known && allocation_is_managed(allocation)));
        *(void **)value = (void *)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned int *)value =
            pointee->known && (allocation->flags & ALLOCATION_SYNC_MEMOPS) != 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)value =
            pointee->reserved ? HANDLE_ID | pointee->view.handle : allocation->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)value = pointee->known && allocation_is_managed(allocation);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = pointee->device       ? pointee->device->ordinal
                        : context_of(pointee) ? allocation->context->device->ordinal
                                              : CU_DEVICE_CPU;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)value = pointee->known && allocation->kind == ALLOCATION_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)value = pointee->reserved ? pointee->view.handle_types : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(unsigned int *)value = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)value = pointee->reserved ? NULL : allocation->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* What the device of the current context may do. */
static CUresult answer_access(void *value, const struct pointee *pointee)
{
    CURRENT_CONTEXT(context);
    const struct allocation *allocation = &pointee->allocation;
    int own = context->device->ordinal;
    bool elsewhere = allocation->pool && pointee->device && pointee->device != context->device;
    *(unsigned int *)value = pointee->reserved ? pointee->view.mapping.access[own]
                             : elsewhere       ? allocation->pool->peers[own]
                                               : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct pointee pointee;
    DRIVER_CHECK();
    INVALID_IF(!value || !find_pointee(address, &pointee));
    CUresult result = answer_range(value, attribute, &pointee);
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    INVALID_IF(pointee.reserved && !pointee.view.mapped);
    return attribute == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
               ? answer_access(value, &pointee)
               : answer_memory(value, attribute, address, &pointee);
}

/* As documented: attributes that a pointer does not have come back as zero, without an error. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr address)
{
    DRIVER_CHECK();
    INVALID_IF(!attributes || !values);
    for (unsigned int i = 0; i < count; i++)
        if (cuPointerGetAttribute(values[i], attributes[i], address) != CUDA_SUCCESS && values[i])
            switch (attributes[i]) {
            case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            case CU_POINTER_ATTRIBUTE_MAPPED:
            case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
                *(unsigned int *)values[i] = 0;
                break;
            case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int *)values[i] = CU_DEVICE_INVALID;
                break;
            default:
                *(uint64_t *)values[i] = 0;
            }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address)
{
    DRIVER_CHECK();
    INVALID_IF(!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_locked(address, 1);
    if (allocation)
        allocation->flags = (allocation->flags & ~ALLOCATION_SYNC_MEMOPS) |
                            (*(const unsigned int *)value ? ALLOCATION_SYNC_MEMOPS : 0);
    pthread_mutex_unlock(&memory_mutex);
    return allocation ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
