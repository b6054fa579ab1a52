/*
 * Texture and surface objects: handles that remember what they were made of. Kernels compute
 * nothing, so nobody samples them. A handle is a number, never given out twice, in a tree under a
 * mutex that takes no other; an object ends with its context.
 */
#include <search.h>
#include <stdlib.h>

#include "array.h"

#define TEXTURE_ALIGNMENT 512u
#define TEXTURE_PITCH_ALIGNMENT 32u
#define MAX_PITCH_BYTES 0x7fffffffu

struct object {
    unsigned long long handle;
    bool surface;
    const struct CUctx_st *context;
    unsigned long long context_id;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC sampling;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view;
};

static pthread_mutex_t object_mutex = PTHREAD_MUTEX_INITIALIZER;
static void *object_tree; /* of struct object, by handle */
static unsigned long long last_handle;

static int compare_handles(const void *left, const void *right)
{
    const struct object *one = left, *other = right;
    return one->handle < other->handle ? -1 : one->handle > other->handle;
}

static CUresult insert(const struct object *made, unsigned long long *handle)
{
    struct object *object = malloc(sizeof *object);
    REFUSE_IF(!object, CUDA_ERROR_OUT_OF_MEMORY);
    *object = *made;
    pthread_mutex_lock(&object_mutex);
    object->handle = ++last_handle;
    bool inserted = tsearch(object, &object_tree, compare_handles) != NULL;
    *handle = object->handle;
    pthread_mutex_unlock(&object_mutex);
    if (inserted)
        return CUDA_SUCCESS;
    free(object);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Reads an object, and takes it out where asked; CUDA_ERROR_INVALID_VALUE: there is none. */
static CUresult find(unsigned long long handle, bool surface, bool take, struct object *found)
{
    CURRENT_CONTEXT(context);
    struct object key = {.handle = handle};
    pthread_mutex_lock(&object_mutex);
    struct object **node = tfind(&key, &object_tree, compare_handles);
    struct object *object = node && (*node)->surface == surface ? *node : NULL;
    if (object)
        *found = *object;
    if (object && take) {
        tdelete(object, &object_tree, compare_handles);
        free(object);
    }
    pthread_mutex_unlock(&object_mutex);
    return object && found->context->alive && found->context->id == found->context_id
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* ---- what can be an object ------------------------------------------------------------------- */

static bool linear_is_good(const CUDA_RESOURCE_DESC *resource)
{
    return array_element_bytes(resource->res.linear.format, resource->res.linear.numChannels) &&
           resource->res.linear.devPtr % TEXTURE_ALIGNMENT == 0 &&
           resource->res.linear.sizeInBytes > 0 &&
           memory_find(resource->res.linear.devPtr, resource->res.linear.sizeInBytes, NULL);
}

static bool pitched_is_good(const CUDA_RESOURCE_DESC *resource)
{
    uint64_t element_bytes =
        array_element_bytes(resource->res.pitch2D.format, resource->res.pitch2D.numChannels);
    uint64_t pitch_bytes = resource->res.pitch2D.pitchInBytes;
    uint64_t width = resource->res.pitch2D.width, height = resource->res.pitch2D.height;
    if (element_bytes == 0 || width == 0 || height == 0 || pitch_bytes > MAX_PITCH_BYTES ||
        width > pitch_bytes / element_bytes || height > MAX_PITCH_BYTES)
        return false;
    return resource->res.pitch2D.devPtr % TEXTURE_ALIGNMENT == 0 &&
           pitch_bytes % TEXTURE_PITCH_ALIGNMENT == 0 &&
           memory_find(resource->res.pitch2D.devPtr,
                       (height - 1) * pitch_bytes + width * element_bytes, NULL);
}

/* The form of the array behind a resource; NULL: there is none. */
static const CUDA_ARRAY3D_DESCRIPTOR *array_form(const CUDA_RESOURCE_DESC *resource)
{
    if (resource->resType == CU_RESOURCE_TYPE_ARRAY)
        return array_check(resource->res.array.hArray) == CUDA_SUCCESS
                   ? &resource->res.array.hArray->form
                   : NULL;
    if (resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        return mipmap_check(resource->res.mipmap.hMipmappedArray) == CUDA_SUCCESS
                   ? &resource->res.mipmap.hMipmappedArray->form
                   : NULL;
    return NULL;
}

static bool texture_is_good(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *sampling,
                            const CUDA_RESOURCE_VIEW_DESC *view)
{
    if (!resource || !sampling || resource->flags)
        return false;
    const CUDA_ARRAY3D_DESCRIPTOR *form = array_form(resource);
    if (sampling->flags & CU_TRSF_SEAMLESS_CUBEMAP && !(form && form->Flags & CUDA_ARRAY3D_CUBEMAP))
        return false;
    if (resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
        !(sampling->flags & CU_TRSF_NORMALIZED_COORDINATES))
        return false;
    if (resource->resType == CU_RESOURCE_TYPE_LINEAR)
        return !view && linear_is_good(resource);
    if (resource->resType == CU_RESOURCE_TYPE_PITCH2D)
        return !view && pitched_is_good(resource);
    return form != NULL;
}

/* ---- textures -------------------------------------------------------------------------------- */

CUresult cuTexObjectCreate(CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *sampling, const CUDA_RESOURCE_VIEW_DESC *view)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!texture || !texture_is_good(resource, sampling, view));
    struct object object = {.context = context,
                            .context_id = context->id,
                            .resource = *resource,
                            .sampling = *sampling,
                            .has_view = view != NULL};
    if (view)
        object.view = *view;
    return insert(&object, texture);
}

CUresult cuTexObjectDestroy(CUtexObject texture)
{
    struct object found;
    return find(texture, false, true, &found);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject texture)
{
    struct object found;
    CHECK(resource ? find(texture, false, false, &found) : CUDA_ERROR_INVALID_VALUE);
    *resource = found.resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *sampling, CUtexObject texture)
{
    struct object found;
    CHECK(sampling ? find(texture, false, false, &found) : CUDA_ERROR_INVALID_VALUE);
    *sampling = found.sampling;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject texture)
{
    struct object found;
    CHECK(view ? find(texture, false, false, &found) : CUDA_ERROR_INVALID_VALUE);
    INVALID_IF(!found.has_view);
    *view = found.view;
    return CUDA_SUCCESS;
}

/* ---- surfaces -------------------------------------------------------------------------------- */

/* That the array must be made for surfaces is documented for surface references; taken to hold for
 * objects too. */
CUresult cuSurfObjectCreate(CUsurfObject *surface, const CUDA_RESOURCE_DESC *resource)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!surface || !resource || resource->flags ||
               resource->resType != CU_RESOURCE_TYPE_ARRAY);
    const CUDA_ARRAY3D_DESCRIPTOR *form = array_form(resource);
    INVALID_IF(!form || !(form->Flags & CUDA_ARRAY3D_SURFACE_LDST));
    struct object object = {
        .surface = true, .context = context, .context_id = context->id, .resource = *resource};
    return insert(&object, surface);
}

CUresult cuSurfObjectDestroy(CUsurfObject surface)
{
    struct object found;
    return find(surface, true, true, &found);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject surface)
{
    struct object found;
    CHECK(resource ? find(surface, true, false, &found) : CUDA_ERROR_INVALID_VALUE);
    *resource = found.resource;
    return CUDA_SUCCESS;
}
