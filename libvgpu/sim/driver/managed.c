/*
 * Calls about managed memory. All of it counts as on its device from its allocation to its free,
 * so a prefetch takes the time of its transfer and moves nothing, and advice is only remembered.
 * Pageable memory of the system is no managed memory: no profile can access it.
 */
#include "managed.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "twins.h"

/* Checks a location, and turns the NUMA node of the calling thread into its number. */
static CUresult settle_location(CUmemLocation *location)
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

/* The old calls name the host as a device. */
static CUmemLocation location_of(CUdevice device)
{
    if (device == CU_DEVICE_CPU)
        return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* ---- prefetches ------------------------------------------------------------------------------ */

static void set_prefetched(struct managed_policy *policy, const void *location)
{
    policy->prefetched = *(const CUmemLocation *)location;
}

/* Begins something on a stream that may not be captured. */
static CUresult begin(CUstream handle, struct CUstream_st **stream)
{
    CUresult result = stream_resolve(handle, stream);
    if (result == CUDA_SUCCESS && (*stream)->capture)
        result = capture_refuse(*stream);
    return result;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                               unsigned int flags, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = begin(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = flags ? CUDA_ERROR_INVALID_VALUE : settle_location(&location);
    if (result == CUDA_SUCCESS)
        result = managed_change(address, bytes, set_prefetched, &location);
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_profile *profile = &stream->context->device->identity->profile;
    struct sim_submission submission = {.cost_ns = transfer_cost_ns(profile, bytes),
                                        .kind = SIM_OPERATION_TRANSFER};
    stream_submit(stream, &submission);
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync_v2(address, bytes, location_of(device), 0, stream);
}

/* What holds for every batch: a real stream, ranges, and all of them managed. */
static CUresult check_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                            unsigned long long flags, CUstream handle)
{
    struct managed_policy unused;
    if (!addresses || !sizes || count == 0 || flags || !handle || handle == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = managed_common(addresses[i], sizes[i], &unused);
    return result;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                 CUmemLocation *locations, size_t *first_indices,
                                 size_t location_count, unsigned long long flags, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = begin(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = check_batch(addresses, sizes, count, flags, handle);
    if (result == CUDA_SUCCESS && (!locations || !first_indices || location_count == 0 ||
                                   location_count > count || first_indices[0] != 0))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < location_count && result == CUDA_SUCCESS; i++) {
        CUmemLocation location = locations[i];
        if (first_indices[i] >= count || (i > 0 && first_indices[i] <= first_indices[i - 1]))
            result = CUDA_ERROR_INVALID_VALUE;
        else
            result = settle_location(&location);
    }
    for (size_t i = 0, place = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (place + 1 < location_count && first_indices[place + 1] == i)
            place++;
        result = cuMemPrefetchAsync_v2(addresses[i], sizes[i], locations[place], 0, handle);
    }
    return result;
}

/* The content is indeterminate afterwards: what it was is as good as anything. */
CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                unsigned long long flags, CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result = begin(handle, &stream);
    return result == CUDA_SUCCESS ? check_batch(addresses, sizes, count, flags, handle) : result;
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                           CUmemLocation *locations, size_t *first_indices,
                                           size_t location_count, unsigned long long flags,
                                           CUstream stream)
{
    return cuMemPrefetchBatchAsync(addresses, sizes, count, locations, first_indices,
                                   location_count, flags, stream);
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
        if (location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
            location.type != CU_MEM_LOCATION_TYPE_HOST)
            return CUDA_ERROR_INVALID_VALUE;
        /* fall through */
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        result = settle_location(&advice.location);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return result == CUDA_SUCCESS ? managed_change(address, bytes, apply_advice, &advice) : result;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
    return cuMemAdvise_v2(address, bytes, advice, location_of(device));
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
    for (int i = 0; i < SIM_MAX_DEVICES; i++)
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
    if (!value || value_bytes == 0 || value_bytes % sizeof(int) ||
        (!list && value_bytes != sizeof(int)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = managed_common(address, bytes, &common);
    if (result != CUDA_SUCCESS)
        return result;
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
    if (!values || !value_bytes || !attributes || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = cuMemRangeGetAttribute(values[i], value_bytes[i], attributes[i], address, bytes);
    return result;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Which stream may use the memory matters only on devices without concurrent access to it. */
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t bytes,
                                unsigned int flags)
{
    struct CUstream_st *stream;
    struct allocation found;
    CUresult result = begin(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    bool single = flags == CU_MEM_ATTACH_SINGLE;
    if ((!single && flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) ||
        (single && (!handle || handle == CU_STREAM_LEGACY)) || !memory_find(address, 1, &found) ||
        found.kind != ALLOCATION_MANAGED || found.address != address ||
        (bytes != 0 && bytes != found.bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_submission submission = {.kind = SIM_OPERATION_EVENT};
    stream_submit(stream, &submission);
    return CUDA_SUCCESS;
}

TWIN(cuMemPrefetchAsync_ptsz, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
     cuMemPrefetchAsync(address, bytes, device, OWN(stream)))
TWIN(cuMemPrefetchAsync_v2_ptsz,
     (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
      CUstream stream),
     cuMemPrefetchAsync_v2(address, bytes, location, flags, OWN(stream)))
TWIN(cuMemPrefetchBatchAsync_ptsz,
     (CUdeviceptr * addresses, size_t *sizes, size_t count, CUmemLocation *locations,
      size_t *first_indices, size_t location_count, unsigned long long flags, CUstream stream),
     cuMemPrefetchBatchAsync(addresses, sizes, count, locations, first_indices, location_count,
                             flags, OWN(stream)))
TWIN(cuMemDiscardBatchAsync_ptsz,
     (CUdeviceptr * addresses, size_t *sizes, size_t count, unsigned long long flags,
      CUstream stream),
     cuMemDiscardBatchAsync(addresses, sizes, count, flags, OWN(stream)))
TWIN(cuMemDiscardAndPrefetchBatchAsync_ptsz,
     (CUdeviceptr * addresses, size_t *sizes, size_t count, CUmemLocation *locations,
      size_t *first_indices, size_t location_count, unsigned long long flags, CUstream stream),
     cuMemDiscardAndPrefetchBatchAsync(addresses, sizes, count, locations, first_indices,
                                       location_count, flags, OWN(stream)))
TWIN(cuStreamAttachMemAsync_ptsz,
     (CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags),
     cuStreamAttachMemAsync(OWN(stream), address, bytes, flags))
