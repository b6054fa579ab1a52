/* Attributes of streams: kept and given back, and nothing is done about them. */
#include <string.h>

#include "driver.h"
#include "twins.h"

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                              const CUstreamAttrValue *value)
{
    struct CUstream_st *stream;
    int least = 0, greatest = 0;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    INVALID_IF(!value);
    struct stream_settings *settings = &stream->settings;
    const CUaccessPolicyWindow *window = (const CUaccessPolicyWindow *)value;
    unsigned int number;
    memcpy(&number, value, sizeof number);
    switch ((int)attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        INVALID_IF(!(window->hitRatio >= 0 && window->hitRatio <= 1) ||
                   (unsigned int)window->hitProp > CU_ACCESS_PROPERTY_PERSISTING ||
                   (unsigned int)window->missProp > CU_ACCESS_PROPERTY_STREAMING);
        settings->access_policy = *window;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        INVALID_IF(number < CU_SYNC_POLICY_AUTO || number > CU_SYNC_POLICY_BLOCKING_SYNC);
        settings->synchronisation_policy = number;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        result = cuCtxGetStreamPriorityRange(&least, &greatest);
        if (result == CUDA_SUCCESS && (value->priority > least || value->priority < greatest))
            result = CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_SUCCESS)
            stream->priority = value->priority;
        return result;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        memcpy(settings->sync_domain_map, value, sizeof settings->sync_domain_map);
        settings->has_sync_domain_map = true;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        INVALID_IF(number > 1);
        settings->sync_domain = number;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    static const unsigned char default_map[2] = {0, 1}; /* the remote domain is another one */
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!value);
    const struct stream_settings *settings = &stream->settings;
    unsigned int policy =
        settings->synchronisation_policy ? settings->synchronisation_policy : CU_SYNC_POLICY_AUTO;
    const void *from;
    size_t bytes;
    switch ((int)attribute) {
#define IS(name, member) \
    case CU_LAUNCH_ATTRIBUTE_##name: \
        from = &(member); \
        bytes = sizeof(member); \
        break;
        IS(ACCESS_POLICY_WINDOW, settings->access_policy)
        IS(SYNCHRONIZATION_POLICY, policy)
        IS(PRIORITY, stream->priority)
        IS(MEM_SYNC_DOMAIN, settings->sync_domain)
#undef IS
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        from = settings->has_sync_domain_map ? settings->sync_domain_map : default_map;
        bytes = sizeof default_map;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(value, 0, sizeof *value);
    memcpy(value, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream target, CUstream source)
{
    struct CUstream_st *to, *from;
    CHECK(stream_resolve(target, &to));
    CHECK(stream_resolve(source, &from));
    INVALID_IF(to->context != from->context); /* as documented: both of the same context */
    to->settings = from->settings;
    to->priority = from->priority;
    return CUDA_SUCCESS;
}

TWIN(cuStreamSetAttribute_ptsz,
     (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value),
     cuStreamSetAttribute(OWN(stream), attribute, value))
TWIN(cuStreamGetAttribute_ptsz,
     (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value),
     cuStreamGetAttribute(OWN(stream), attribute, value))
TWIN(cuStreamCopyAttributes_ptsz, (CUstream target, CUstream source),
     cuStreamCopyAttributes(OWN(target), OWN(source)))
