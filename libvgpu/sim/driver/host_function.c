#include "host_function.h"

#include <signal.h>
#include <stdlib.h>

struct call {
    struct CUstream_st *stream;
    struct sim_device *device;
    uint64_t sequence;
    stream_function function;
    void *argument;
    struct call *next;
};

static pthread_mutex_t calls_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t calls_changed = PTHREAD_COND_INITIALIZER;
static struct call *first_call, **last_call = &first_call;
static bool caller_runs;
static __thread bool inside_call;

static void *run_calls(void *argument)
{
    (void)argument;
    inside_call = true;
    pthread_mutex_lock(&calls_mutex);
    for (;;) {
        while (!first_call)
            pthread_cond_wait(&calls_changed, &calls_mutex);
        struct call *call = first_call;
        first_call = call->next;
        if (!first_call)
            last_call = &first_call;
        pthread_mutex_unlock(&calls_mutex);
        sim_queue_wait(call->device, call->sequence);
        call->function(call->argument);
        pthread_mutex_lock(&calls_mutex);
        __atomic_sub_fetch(&call->stream->callbacks, 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&calls_changed);
        free(call);
    }
    return NULL;
}

static bool start_caller(void)
{
    pthread_t thread;
    sigset_t all, before;
    if (caller_runs)
        return true;
    sigfillset(&all); /* the program's signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    caller_runs = pthread_create(&thread, NULL, run_calls, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (caller_runs)
        pthread_detach(thread);
    return caller_runs;
}

void host_function_wait(struct CUstream_st *stream)
{
    if (inside_call || !__atomic_load_n(&stream->callbacks, __ATOMIC_ACQUIRE))
        return;
    pthread_mutex_lock(&calls_mutex);
    while (__atomic_load_n(&stream->callbacks, __ATOMIC_ACQUIRE))
        pthread_cond_wait(&calls_changed, &calls_mutex);
    pthread_mutex_unlock(&calls_mutex);
}

CUresult stream_call(struct CUstream_st *stream, stream_function function, void *argument)
{
    struct call *call = malloc(sizeof *call);
    if (!call)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_submission marker = {.kind = SIM_OPERATION_EVENT};
    *call = (struct call){.stream = stream,
                          .device = stream->context->device->device,
                          .function = function,
                          .argument = argument};
    call->sequence = stream_submit(stream, &marker);
    pthread_mutex_lock(&calls_mutex);
    bool started = start_caller();
    if (started) {
        __atomic_add_fetch(&stream->callbacks, 1, __ATOMIC_RELEASE);
        *last_call = call;
        last_call = &call->next;
        pthread_cond_broadcast(&calls_changed);
    }
    pthread_mutex_unlock(&calls_mutex);
    if (!started)
        free(call);
    return started ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument)
{
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return capture_add_host(stream, function, argument);
    return stream_call(stream, function, argument);
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
    struct CUstream_st *stream;
    CUresult result = stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!function || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return capture_refuse(stream); /* as documented: only cuLaunchHostFunc can be captured */
    struct callback *callback = malloc(sizeof *callback);
    if (!callback)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){function, handle, argument};
    result = stream_call(stream, run_callback, callback);
    if (result != CUDA_SUCCESS)
        free(callback);
    return result;
}
