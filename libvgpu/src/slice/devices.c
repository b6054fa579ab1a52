#include "slice/devices.h"

#include <stdbool.h>
#include <stdio.h>

#include "driver/real.h"
#include "slice/region.h"

#define CUDA_DEVICES 64
#define UUID_TEXT_BYTES 96
#define UNKNOWN 0 /* stored is index + 2, so that zeroed memory means unknown */

static signed char found[CUDA_DEVICES];

static int look_up(CUdevice device)
{
    CUuuid uuid;
    __typeof__(real.cuDeviceGetUuid_v2) get =
        real.cuDeviceGetUuid_v2 != NULL ? real.cuDeviceGetUuid_v2 : real.cuDeviceGetUuid;
    CUresult result = get != NULL ? get(&uuid, device) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_INVALID_DEVICE)
        return DEVICE_UNKNOWN;
    if (result != CUDA_SUCCESS)
        return DEVICE_NOT_OURS;
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    char text[UUID_TEXT_BYTES];
    snprintf(text, sizeof text,
             "-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    return region_find_device(text);
}

int devices_find(CUdevice device)
{
    if (device < 0 || device >= CUDA_DEVICES)
        return DEVICE_NOT_OURS;
    if (__builtin_expect(found[device] != UNKNOWN, 1))
        return found[device] - 2;
    int index = look_up(device);
    if (index < 0)
        return index; /* not kept: a later call may know more */
    found[device] = (signed char)(index + 2);
    return index;
}

int devices_find_nvml(nvmlDevice_t device)
{
    char uuid[UUID_TEXT_BYTES];
    if (real.nvmlDeviceGetUUID == NULL ||
        real.nvmlDeviceGetUUID(device, uuid, sizeof uuid) != NVML_SUCCESS)
        return DEVICE_NOT_OURS;
    return region_find_device(uuid);
}

static CUresult ask_current_ordinal(CUdevice *ordinal)
{
    return real.cuCtxGetDevice != NULL ? real.cuCtxGetDevice(ordinal) : CUDA_ERROR_NOT_INITIALIZED;
}

/* Whether with that answer nothing can be taken either. */
static bool is_nothing_possible(CUresult result)
{
    return __builtin_expect(result != CUDA_SUCCESS, 0) &&
           (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEINITIALIZED ||
            result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

int devices_current(void)
{
    CUdevice ordinal;
    return ask_current_ordinal(&ordinal) == CUDA_SUCCESS ? devices_find(ordinal) : DEVICE_UNKNOWN;
}

CUresult devices_ask_current(int *device)
{
    CUdevice ordinal;
    CUresult result = ask_current_ordinal(&ordinal);
    *device = result == CUDA_SUCCESS ? devices_find(ordinal) : DEVICE_UNKNOWN;
    return is_nothing_possible(result) ? CUDA_SUCCESS : result;
}

/* Streams that are names for the current context's own ones. */
static bool is_name(CUstream stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

static CUcontext current_context(void)
{
    CUcontext current = NULL;
    if (real.cuCtxGetCurrent == NULL || real.cuCtxGetCurrent(&current) != CUDA_SUCCESS)
        return NULL;
    return current;
}

static CUresult ask_own_context(CUstream stream, CUcontext *context)
{
    return real.cuStreamGetCtx != NULL ? real.cuStreamGetCtx(stream, context) : CUDA_SUCCESS;
}

static CUresult ask_context(CUstream stream, CUcontext *context)
{
    CUgreenCtx green; /* the first of the two answers is never this one */
    return real.cuStreamGetCtx_v2 != NULL ? real.cuStreamGetCtx_v2(stream, context, &green)
                                          : ask_own_context(stream, context);
}

static CUcontext context_by(CUstream stream, CUresult (*ask)(CUstream, CUcontext *))
{
    CUcontext context = NULL;
    if (is_name(stream) || ask(stream, &context) != CUDA_SUCCESS || context == NULL)
        return current_context();
    return context;
}

CUcontext devices_own_context_of(CUstream stream)
{
    return context_by(stream, ask_own_context);
}

CUcontext devices_context_of(CUstream stream)
{
    return context_by(stream, ask_context);
}

static CUresult ask_stream_ordinal(CUstream stream, CUdevice *ordinal)
{
    if (is_name(stream))
        return ask_current_ordinal(ordinal);
    CUcontext context = NULL;
    CUresult result = ask_context(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL || context == current_context() || real.cuCtxPushCurrent_v2 == NULL)
        return ask_current_ordinal(ordinal);
    result = real.cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = ask_current_ordinal(ordinal);
    real.cuCtxPopCurrent_v2(&context);
    return result;
}

bool devices_ordinal_of_stream(CUstream stream, CUdevice *ordinal)
{
    return ask_stream_ordinal(stream, ordinal) == CUDA_SUCCESS;
}

CUresult devices_ask_stream_ordinal(CUstream stream, CUdevice *ordinal, bool *is_known)
{
    CUresult result = ask_stream_ordinal(stream, ordinal);
    *is_known = result == CUDA_SUCCESS;
    return is_nothing_possible(result) ? CUDA_SUCCESS : result;
}

CUresult devices_ask_stream(CUstream stream, int *device)
{
    CUdevice ordinal;
    bool is_known;
    CUresult result = devices_ask_stream_ordinal(stream, &ordinal, &is_known);
    *device = is_known ? devices_find(ordinal) : DEVICE_UNKNOWN;
    return result;
}

int devices_of_stream(CUstream stream)
{
    CUdevice ordinal;
    bool is_known = ask_stream_ordinal(stream, &ordinal) == CUDA_SUCCESS;
    return is_known ? devices_find(ordinal) : DEVICE_UNKNOWN;
}

int devices_of_pointer(CUdeviceptr address)
{
    int ordinal;
    if (real.cuPointerGetAttribute == NULL ||
        real.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) !=
            CUDA_SUCCESS)
        return DEVICE_UNKNOWN;
    return devices_find(ordinal);
}
