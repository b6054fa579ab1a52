/*
 * Peers: GPUs of one machine that can reach each other's memory, over PCIe. Those of the same
 * compute capability can, as if every machine were wired for it (real ones need GPUs of one
 * architecture and a chipset that lets them). Who enabled access to whom is remembered, by the
 * numbers of the contexts' lives, and nothing depends on it: kernels read nothing, and copies
 * between devices go through the host where access is off.
 */
#include <stdlib.h>

#include "copy.h"
#include "twins.h"

struct access {
    const struct CUctx_st *context, *peer;
    unsigned long long context_id, peer_id;
    struct access *next;
};

static pthread_mutex_t access_mutex = PTHREAD_MUTEX_INITIALIZER; /* takes no other */
static struct access *access_list;

static bool is_alive(const struct CUctx_st *context)
{
    return context_is_one(context) && context->alive;
}

static bool can_access(const struct driver_device *device, const struct driver_device *peer)
{
    const struct sim_profile *one = &device->identity->profile, *other = &peer->identity->profile;
    return device != peer && one->compute_major == other->compute_major &&
           one->compute_minor == other->compute_minor;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    DRIVER_CHECK();
    INVALID_IF(!can);
    REFUSE_IF(!device_of(device) || !device_of(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = can_access(device_of(device), device_of(peer));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source,
                                 CUdevice target)
{
    DRIVER_CHECK();
    INVALID_IF(!value);
    REFUSE_IF(!device_of(source) || !device_of(target) || source == target,
              CUDA_ERROR_INVALID_DEVICE);
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = can_access(device_of(source), device_of(target));
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: /* all links are alike */
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED: /* not over PCIe */
        *value = 0;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static bool holds(const struct access *access)
{
    return access->context->alive && access->context->id == access->context_id &&
           access->peer->alive && access->peer->id == access->peer_id;
}

/* Finds the entry of two contexts, and forgets on the way what ended with a context. */
static struct access **find_locked(const struct CUctx_st *context, const struct CUctx_st *peer)
{
    struct access **link = &access_list;
    while (*link) {
        struct access *access = *link;
        if (!holds(access)) {
            *link = access->next;
            free(access);
        } else if (access->context == context && access->peer == peer) {
            return link;
        } else {
            link = &access->next;
        }
    }
    return link;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    INVALID_IF(flags);
    REFUSE_IF(!is_alive(peer) || peer == context, CUDA_ERROR_INVALID_CONTEXT);
    REFUSE_IF(!can_access(context->device, peer->device), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    pthread_mutex_lock(&access_mutex);
    struct access **link = find_locked(context, peer);
    if (*link)
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    else if (!(*link = malloc(sizeof **link)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        **link = (struct access){
            .context = context, .peer = peer, .context_id = context->id, .peer_id = peer->id};
    pthread_mutex_unlock(&access_mutex);
    return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    REFUSE_IF(!is_alive(peer), CUDA_ERROR_INVALID_CONTEXT);
    pthread_mutex_lock(&access_mutex);
    struct access **link = find_locked(context, peer), *access = *link;
    if (access) {
        *link = access->next;
        free(access);
    } else {
        result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    pthread_mutex_unlock(&access_mutex);
    return result;
}

/* ---- copies ---------------------------------------------------------------------------------- */

CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                           CUcontext source_context, size_t bytes, CUstream handle)
{
    RESOLVE_STREAM(stream, handle);
    REFUSE_IF(!is_alive(target_context) || !is_alive(source_context), CUDA_ERROR_INVALID_CONTEXT);
    if (bytes == 0)
        return CUDA_SUCCESS;
    INVALID_IF(!memory_find(target, bytes, NULL) || !memory_find(source, bytes, NULL));
    struct region to = region_of_row(target, bytes), from = region_of_row(source, bytes);
    return copy_issue(stream, &to, &from, false);
}

/* As documented it does not hold up the host; the order that it keeps with the work of both
 * contexts is that of the current context's default stream alone. */
CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                      CUcontext source_context, size_t bytes)
{
    return cuMemcpyPeerAsync(target, target_context, source, source_context, bytes, NULL);
}

TWIN(cuMemcpyPeer_ptds,
     (CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
      size_t bytes),
     cuMemcpyPeer(target, target_context, source, source_context, bytes))
TWIN(cuMemcpyPeerAsync_ptsz,
     (CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
      size_t bytes, CUstream stream),
     cuMemcpyPeerAsync(target, target_context, source, source_context, bytes, OWN(stream)))
