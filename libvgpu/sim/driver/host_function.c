/* Host functions in streams (cuLaunchHostFunc, cuStreamAddCallback). */
#include <stdlib.h>

#include "driver.h"

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument)
{
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!function);
    if (stream_capture(stream))
        return capture_add_host(stream, function, argument);
    return stream_call(stream, function, argument);
}

/* The form of CUDA 13.1 says how the driver's thread is to wait for such functions: ours has one way. */
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *argument, unsigned int mode)
{
    INVALID_IF(mode > 1);
    return cuLaunchHostFunc(stream, function, argument);
}

struct callback {
    CUstreamCallback function;
    CUstream handle;
    void *argument;
};

static void run_callback(void *argument)
{
    struct callback *callback = argument;
    callback->function(callback->handle, CUDA_SUCCESS, callback->argument);
    free(callback);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *argument,
                             unsigned int flags)
{
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(!function || flags);
    if (stream_capture(stream))
        return capture_refuse(stream); /* as documented: only cuLaunchHostFunc can be captured */
    struct callback *callback = malloc(sizeof *callback);
    REFUSE_IF(!callback, CUDA_ERROR_OUT_OF_MEMORY);
    *callback = (struct callback){function, handle, argument};
    CUresult result = stream_call(stream, run_callback, callback);
    if (result != CUDA_SUCCESS)
        free(callback);
    return result;
}
