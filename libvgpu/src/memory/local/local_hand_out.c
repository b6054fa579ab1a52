/* Functions and kernels as the driver hands them out (local_functions.h), and what each needs of
 * local memory, asked of the driver. */
#include <stddef.h>

#include "driver/capture.h"
#include "driver/real.h"
#include "memory/contexts/context_charge.h"
#include "memory/local/local_functions.h"
#include "memory/local/local_memory.h"
#include "slice/devices.h"
#include "slice/region.h"

#define ALL_DEVICES UINT64_MAX

static uint64_t function_bytes(CUfunction function)
{
    int value = 0;
    struct capture_pause pause = capture_pause();
    if (real.cuFuncGetAttribute == NULL ||
        real.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) !=
            CUDA_SUCCESS)
        value = 0;
    capture_resume(pause);
    return value > 0 ? (uint64_t)value : 0;
}

/* False: the driver does not say, and its launch is no better. */
static bool kernel_bytes(CUkernel kernel, CUdevice ordinal, uint64_t *bytes)
{
    int value = 0;
    struct capture_pause pause = capture_pause();
    bool is_told = real.cuKernelGetAttribute == NULL ||
                   real.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel,
                                             ordinal) == CUDA_SUCCESS;
    capture_resume(pause);
    *bytes = value > 0 ? (uint64_t)value : 0;
    return is_told;
}

static bool has_device(CUdevice *ordinal)
{
    return real.cuCtxGetDevice != NULL && real.cuCtxGetDevice(ordinal) == CUDA_SUCCESS;
}

static uint64_t bit_of(int device)
{
    return device >= 0 ? (uint64_t)1 << device : 0;
}

/* ---- asking ---- */

uint64_t local_memory_ask(const void *noted, CUdevice ordinal, int device)
{
    uint64_t bytes;
    const struct local_function *function = local_functions_find(noted);
    if (function == NULL)
        return 0;
    if (function->context != NULL || (function->asked & bit_of(device)) != 0 ||
        !kernel_bytes((CUkernel)noted, ordinal, &bytes))
        return function->bytes_a_thread;
    contexts_lock();
    local_memory_learnt(noted, bytes, bit_of(device));
    contexts_unlock();
    return bytes;
}

uint64_t local_memory_of(CUfunction function, CUkernel kernel)
{
    CUdevice ordinal = 0;
    const void *object = function != NULL ? (const void *)function : (const void *)kernel;
    if (region_open() != REGION_MAPPED || object == NULL || !has_device(&ordinal))
        return 0;
    if (local_functions_find(object) != NULL)
        return local_memory_ask(object, ordinal, devices_find(ordinal));
    return function != NULL ? function_bytes(function) : 0;
}

/* ---- hand-outs ---- */

static void note_function(CUfunction function, uint64_t bytes, const void *owner)
{
    CUcontext context = NULL;
    if (real.cuCtxGetCurrent == NULL || real.cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
        context == NULL)
        return;
    contexts_lock();
    local_memory_context_made(context);
    /* also what takes nothing, where another one had the same handle before */
    if ((bytes > 0 || local_functions_find(function) != NULL) &&
        local_functions_note(function, owner, context) != NULL)
        local_memory_learnt(function, bytes, ALL_DEVICES);
    contexts_unlock();
}

void local_memory_handed_out(const CUfunction *functions, unsigned int count, CUmodule module)
{
    for (unsigned int i = 0; i < count && region_open() == REGION_MAPPED; i++)
        if (functions[i] != NULL)
            note_function(functions[i], function_bytes(functions[i]), module);
}

void local_memory_handed_out_kernels(const CUkernel *kernels, unsigned int count, CUlibrary library)
{
    if (region_open() != REGION_MAPPED)
        return;
    contexts_lock();
    for (unsigned int i = 0; i < count; i++)
        if (kernels[i] != NULL && local_functions_note(kernels[i], library, NULL) != NULL)
            local_memory_learnt(kernels[i], 0, 0);
    contexts_unlock();
}

void local_memory_handed_out_function(CUfunction function, CUkernel kernel)
{
    CUdevice ordinal = 0;
    if (region_open() != REGION_MAPPED || !has_device(&ordinal))
        return;
    uint64_t bytes = function_bytes(function);
    contexts_lock();
    const struct local_function *noted = local_functions_find(kernel);
    const void *owner = noted != NULL ? noted->owner : NULL;
    local_memory_learnt(kernel, bytes, bit_of(devices_find(ordinal)));
    contexts_unlock();
    if ((const void *)function != (const void *)kernel)
        note_function(function, bytes, owner);
}

void local_memory_unloaded(const void *owner)
{
    if (region_open() != REGION_MAPPED || owner == NULL)
        return;
    contexts_lock();
    local_functions_forget(owner, NULL);
    contexts_unlock();
}
