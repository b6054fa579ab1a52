/*
 * What streams do with managed memory. A prefetch takes the time of its transfer; it moves nothing
 * where all of the memory counts as on its device (else see managed_touch.c).
 */
#include "managed.h"
#include "twins.h"

static void set_prefetched(struct managed_policy *policy, const void *location)
{
    policy->prefetched = *(const CUmemLocation *)location;
}

/* Begins something on a stream that may not be captured. */
static CUresult begin(CUstream handle, struct CUstream_st **stream)
{
    CHECK(stream_resolve(handle, stream));
    if ((*stream)->capture)
        CHECK(capture_refuse(*stream));
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                               unsigned int flags, CUstream handle)
{
    struct CUstream_st *stream;
    CHECK(begin(handle, &stream));
    CHECK(flags ? CUDA_ERROR_INVALID_VALUE : managed_settle_location(&location));
    CHECK(managed_change(address, bytes, set_prefetched, &location));
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        managed_leave(address, bytes);
    else
        managed_touch(address, bytes);
    const struct sim_profile *profile = &stream->context->device->identity->profile;
    struct sim_submission submission = {.cost_ns = transfer_cost_ns(profile, bytes),
                                        .kind = SIM_OPERATION_TRANSFER};
    stream_submit(stream, &submission);
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync_v2(address, bytes, managed_location_of(device), 0, stream);
}

/* What holds for every batch: a real stream, ranges, and all of them managed. */
static CUresult check_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                            unsigned long long flags, CUstream handle)
{
    struct managed_policy unused;
    INVALID_IF(!addresses || !sizes || count == 0 || flags || !handle ||
               handle == CU_STREAM_LEGACY);
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
            result = managed_settle_location(&location);
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
    CHECK(begin(handle, &stream));
    return check_batch(addresses, sizes, count, flags, handle);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                           CUmemLocation *locations, size_t *first_indices,
                                           size_t location_count, unsigned long long flags,
                                           CUstream stream)
{
    return cuMemPrefetchBatchAsync(addresses, sizes, count, locations, first_indices,
                                   location_count, flags, stream);
}

/* Which stream may use the memory matters only on devices without concurrent access to it. */
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t bytes,
                                unsigned int flags)
{
    struct CUstream_st *stream;
    struct allocation found;
    CHECK(begin(handle, &stream));
    bool single = flags == CU_MEM_ATTACH_SINGLE;
    INVALID_IF((!single && flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) ||
               (single && (!handle || handle == CU_STREAM_LEGACY)) ||
               !memory_find(address, 1, &found) || !allocation_is_managed(&found) ||
               found.address != address || (bytes != 0 && bytes != found.bytes));
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
