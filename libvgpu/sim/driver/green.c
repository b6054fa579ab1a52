/*
 * Green contexts: part of a device's SMs under a context of its own. That a green context runs only
 * on its SMs is not modelled: its work takes the device like any other. It retains the primary
 * context, costs what the calibration says in addition, and memory that was allocated while it was current ends
 * with it, where the driver's would belong to the primary context. It is current to one thread at a time
 * (context_stack.c).
 *
 * SMs come in groups: of 8 from compute capability 9.0, of 2 on older devices (4 at least), or one
 * by one where the caller asks for that, as the driver's guide says.
 */
#include <stdlib.h>
#include <string.h>

#include "context_memory.h"
#include "twins.h"

#define MAGIC_GREEN 0x000000006e656572ull
#define MAGIC_DESCRIPTION 0x0000000063736564ull
#define HOPPER_MAJOR 9

struct CUdevResourceDesc_st { /* lives as long as the process, as documented */
    uint64_t magic;
    CUdevResource resource;
    int ordinal;
};

struct CUgreenCtx_st {
    uint64_t magic;
    struct CUctx_st *context;
    CUdevResource resource;
    struct CUgreenCtx_st *next;
};

/* Where a resource came from, in its padding: the device, plus one. */
static unsigned char *origin_of(CUdevResource *resource)
{
    return resource->_internal_padding;
}

static pthread_mutex_t green_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct CUgreenCtx_st *green_contexts;

static bool is_green(const struct CUgreenCtx_st *green)
{
    return green && green->magic == MAGIC_GREEN;
}

static uint32_t alignment_of(uint32_t compute_major)
{
    return compute_major >= HOPPER_MAJOR ? 8 : 2;
}

static uint32_t least_of(uint32_t compute_major)
{
    return compute_major >= HOPPER_MAJOR ? 8 : 4;
}

static void describe(CUdevResource *resource, const struct driver_device *device, uint32_t count)
{
    uint32_t major = device->identity->profile.compute_major;
    memset(resource, 0, sizeof *resource);
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = count;
    if (driver_version() >= 13000) {
        resource->sm.minSmPartitionSize = least_of(major);
        resource->sm.smCoscheduledAlignment = alignment_of(major);
    }
    *origin_of(resource) = (unsigned char)(device->ordinal + 1);
}

static struct driver_device *device_of_resource(const CUdevResource *resource)
{
    return device_of((int)resource->_internal_padding[0] - 1);
}

static struct CUgreenCtx_st *green_of(const struct CUctx_st *context)
{
    pthread_mutex_lock(&green_mutex);
    struct CUgreenCtx_st *green = green_contexts;
    while (green && green->context != context)
        green = green->next;
    pthread_mutex_unlock(&green_mutex);
    return green;
}

/* ---- resources ------------------------------------------------------------------------------- */

static CUresult check_type(const CUdevResource *resource, CUdevResourceType type)
{
    INVALID_IF(!resource);
    return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource *resource, CUdevResourceType type)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    CHECK(check_type(resource, type));
    describe(resource, device, device->identity->profile.sm_count);
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type)
{
    DRIVER_CHECK();
    INVALID_IF(!is_green(green));
    CHECK(check_type(resource, type));
    *resource = green->resource;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevResource(CUcontext given, CUdevResource *resource, CUdevResourceType type)
{
    struct CUctx_st *context;
    CHECK(context_given_or_current(given, &context));
    struct CUgreenCtx_st *green = green_of(context);
    return green ? cuGreenCtxGetDevResource(green, resource, type)
                 : cuDeviceGetDevResource(context->device->ordinal, resource, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *group_count,
                                     const CUdevResource *input, CUdevResource *remainder,
                                     unsigned int flags, unsigned int least)
{
    DRIVER_CHECK();
    INVALID_IF(!group_count || !input || least > input->sm.smCount ||
               flags & ~(unsigned int)(CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                                       CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE));
    REFUSE_IF(input->type != CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    struct driver_device *device = device_of_resource(input);
    INVALID_IF(!device); /* not one of ours */
    uint32_t major = device->identity->profile.compute_major;
    bool single = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
    uint32_t unit = single ? (major >= HOPPER_MAJOR ? 1 : 2) : alignment_of(major);
    uint32_t size = least < least_of(major) && !single ? least_of(major) : least;
    size = size ? (size + unit - 1) / unit * unit : unit;
    unsigned int possible = input->sm.smCount / size;
    unsigned int made = groups && *group_count < possible ? *group_count : possible;
    unsigned int total = input->sm.smCount; /* `input` may be one of the outputs */
    for (unsigned int i = 0; groups && i < made; i++)
        describe(&groups[i], device, size);
    if (remainder) {
        describe(remainder, device, total - made * size);
        if (remainder->sm.smCount == 0)
            remainder->type = CU_DEV_RESOURCE_TYPE_INVALID;
    }
    *group_count = made;
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources,
                                   unsigned int count)
{
    DRIVER_CHECK();
    INVALID_IF(!description || !resources || count == 0);
    struct driver_device *device = device_of_resource(resources);
    unsigned int total = 0;
    for (unsigned int i = 0; i < count; i++) {
        REFUSE_IF(resources[i].type != CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
        REFUSE_IF(!device || device_of_resource(&resources[i]) != device,
                  CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        total += resources[i].sm.smCount;
    }
    REFUSE_IF(total == 0 || total > device->identity->profile.sm_count,
              CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    struct CUdevResourceDesc_st *made = calloc(1, sizeof *made);
    REFUSE_IF(!made, CUDA_ERROR_OUT_OF_MEMORY);
    made->magic = MAGIC_DESCRIPTION;
    made->ordinal = device->ordinal;
    describe(&made->resource, device, total);
    *description = made;
    return CUDA_SUCCESS;
}

/* ---- contexts -------------------------------------------------------------------------------- */

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice ordinal,
                          unsigned int flags)
{
    CUcontext primary;
    DRIVER_CHECK();
    INVALID_IF(!green || !description || description->magic != MAGIC_DESCRIPTION ||
               flags & ~(unsigned int)CU_GREEN_CTX_DEFAULT_STREAM ||
               description->ordinal != ordinal);
    struct CUgreenCtx_st *created = calloc(1, sizeof *created);
    REFUSE_IF(!created, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = cuDevicePrimaryCtxRetain(&primary, ordinal);
    if (result == CUDA_SUCCESS) {
        result = context_create_green(&created->context, primary->flags, ordinal);
        if (result != CUDA_SUCCESS)
            cuDevicePrimaryCtxRelease_v2(ordinal);
    }
    if (result != CUDA_SUCCESS) {
        free(created);
        return result;
    }
    cuCtxPopCurrent_v2(NULL); /* a green context is not made current */
    created->magic = MAGIC_GREEN;
    created->resource = description->resource;
    context_settings_of(created->context)->green = true;
    pthread_mutex_lock(&green_mutex);
    created->next = green_contexts;
    green_contexts = created;
    pthread_mutex_unlock(&green_mutex);
    *green = created;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    DRIVER_CHECK();
    INVALID_IF(!is_green(green));
    pthread_mutex_lock(&green_mutex);
    struct CUgreenCtx_st **link = &green_contexts;
    while (*link && *link != green)
        link = &(*link)->next;
    if (*link)
        *link = green->next;
    pthread_mutex_unlock(&green_mutex);
    CUdevice ordinal = green->context->device->ordinal;
    cuCtxDestroy_v2(green->context);
    green->magic = 0;
    free(green);
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    DRIVER_CHECK();
    INVALID_IF(!context);
    REFUSE_IF(!is_green(green), CUDA_ERROR_INVALID_CONTEXT);
    *context = green->context;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                int priority)
{
    DRIVER_CHECK();
    INVALID_IF(!is_green(green) || !stream || flags != CU_STREAM_NON_BLOCKING);
    INVALID_IF(context_stack_is_full());
    context_stack_push(green->context); /* also while another thread has it current */
    CUresult result = cuStreamCreateWithPriority(stream, flags, priority);
    cuCtxPopCurrent_v2(NULL);
    return result;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    DRIVER_CHECK();
    return is_green(green) ? cuCtxRecordEvent(green->context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    DRIVER_CHECK();
    return is_green(green) ? cuCtxWaitEvent(green->context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green)
{
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!context || !green);
    *green = green_of(stream->context);
    REFUSE_IF(*green && handle == CU_STREAM_PER_THREAD, CUDA_ERROR_INVALID_HANDLE);
    *context = *green ? &stream->context->device->primary : stream->context;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!green);
    *green = green_of(stream->context);
    return CUDA_SUCCESS;
}

TWIN(cuStreamGetCtx_v2_ptsz, (CUstream stream, CUcontext *context, CUgreenCtx *green),
     cuStreamGetCtx_v2(OWN(stream), context, green))
