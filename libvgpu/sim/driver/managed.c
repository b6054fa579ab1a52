/* Advice about managed memory, which is remembered and told. Pageable memory of the system is no
 * managed memory: no profile can access it. */
#include "managed.h"

#include <sys/syscall.h>
#include <unistd.h>

CUresult managed_settle_location(CUmemLocation *location)
{
    unsigned int node = 0;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return device_of(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
        location->id = 0; /* ignored */
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        syscall(SYS_getcpu, NULL, &node, NULL);
        *location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = (int)node};
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUmemLocation managed_location_of(CUdevice device)
{
    if (device == CU_DEVICE_CPU)
        return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* ---- advice ---------------------------------------------------------------------------------- */

struct advice {
    CUmem_advise kind;
    CUmemLocation location;
};

static uint32_t accessor_bit(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST ? MANAGED_BY_HOST : 1u << location->id;
}

static void apply_advice(struct managed_policy *policy, const void *argument)
{
    const struct advice *advice = argument;
    switch (advice->kind) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        policy->read_mostly = advice->kind == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        policy->preferred = advice->location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        policy->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        policy->accessed_by |= accessor_bit(&advice->location);
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        policy->accessed_by &= ~accessor_bit(&advice->location);
        break;
    }
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise kind,
                        CUmemLocation location)
{
    struct advice advice = {kind, location};
    CUresult result = CUDA_SUCCESS;
    DRIVER_CHECK();
    switch (kind) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        break; /* the location is ignored */
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        INVALID_IF(location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
                   location.type != CU_MEM_LOCATION_TYPE_HOST);
        /* fall through */
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        result = managed_settle_location(&advice.location);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return result == CUDA_SUCCESS ? managed_change(address, bytes, apply_advice, &advice) : result;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
    return cuMemAdvise_v2(address, bytes, advice, managed_location_of(device));
}

/* ---- questions ------------------------------------------------------------------------------- */

static int device_number(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_INVALID  ? CU_DEVICE_INVALID
           : location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id
                                                           : CU_DEVICE_CPU;
}

static void list_accessors(uint32_t accessed_by, int *list, size_t count)
{
    size_t filled = 0;
    if (accessed_by & MANAGED_BY_HOST && filled < count)
        list[filled++] = CU_DEVICE_CPU;
    for (int i = 0; i < SIM_MAX_GPUS; i++)
        if (accessed_by >> i & 1 && filled < count)
            list[filled++] = i;
    while (filled < count)
        list[filled++] = CU_DEVICE_INVALID;
}

CUresult cuMemRangeGetAttribute(void *value, size_t value_bytes, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes)
{
    struct managed_policy common;
    DRIVER_CHECK();
    bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    INVALID_IF(!value || value_bytes == 0 || value_bytes % sizeof(int) ||
               (!list && value_bytes != sizeof(int)));
    CHECK(managed_common(address, bytes, &common));
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *(int *)value = common.read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *(int *)value = device_number(&common.preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        list_accessors(common.accessed_by, value, value_bytes / sizeof(int));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *(int *)value = device_number(&common.prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *(int *)value = (int)common.preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *(int *)value = common.preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *(int *)value = (int)common.prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *(int *)value = common.prefetched.id;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRangeGetAttributes(void **values, size_t *value_bytes,
                                 CUmem_range_attribute *attributes, size_t count,
                                 CUdeviceptr address, size_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    DRIVER_CHECK();
    INVALID_IF(!values || !value_bytes || !attributes || count == 0);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = cuMemRangeGetAttribute(values[i], value_bytes[i], attributes[i], address, bytes);
    return result;
}
