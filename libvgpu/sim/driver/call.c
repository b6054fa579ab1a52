/*
 * Functions of the host in streams. A call is two operations of the stream: an event, behind which
 * the function may run, and a gate, which the caller lets go when the function has returned; so
 * what comes behind waits for it, and everybody else's view of the timeline is right meanwhile.
 *
 * Each stream that was given a function has a thread of its own, so that one function that blocks
 * holds up its own stream only. The thread ends with its stream, after the last function. What a
 * caller holds is under its mutex. A call's place in the stream and in the caller's list must be
 * the same: the mutex `order` is held from the one to the other, by those who add calls alone, also
 * while they wait for room in a full queue.
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "driver.h"

#define SETTLE_PAUSE_NS 50000

struct call {
    uint64_t before, gate; /* places */
    stream_function function;
    void *argument;
    struct call *next;
};

struct caller {
    const struct CUctx_st *context; /* its memory is never given back */
    /* Held while a call is put onto the stream and into the list, so that both have one order: a
     * function would else wait for a gate that is to be opened behind it. Not needed by the thread,
     * since whoever holds it may wait for room on the stream. */
    pthread_mutex_t order;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct call *first, **last;
    bool closing;
};

static unsigned int pending;
static __thread const struct caller *own_caller; /* on a thread that calls functions */

bool stream_calls_pending(void)
{
    return __atomic_load_n(&pending, __ATOMIC_ACQUIRE) != 0;
}

CUresult stream_calls_settle(void)
{
    const struct timespec pause = {.tv_nsec = SETTLE_PAUSE_NS};
    REFUSE_IF(
        own_caller,
        CUDA_ERROR_NOT_PERMITTED); /* it would wait for itself; functions may not call the driver */
    while (stream_calls_pending())
        nanosleep(&pause, NULL);
    return CUDA_SUCCESS;
}

bool stream_call_is_here(void)
{
    return own_caller != NULL;
}

bool stream_call_is_cut_short(void)
{
    return own_caller && __atomic_load_n(&own_caller->context->ending, __ATOMIC_ACQUIRE);
}

static void *run_calls(void *argument)
{
    struct caller *caller = argument;
    struct sim_device *device = caller->context->device->device;
    own_caller = caller;
    pthread_mutex_lock(&caller->mutex);
    for (;;) {
        while (!caller->first && !caller->closing)
            pthread_cond_wait(&caller->changed, &caller->mutex);
        struct call *call = caller->first;
        if (!call)
            break;
        caller->first = call->next;
        if (!caller->first)
            caller->last = &caller->first;
        pthread_mutex_unlock(&caller->mutex);
        if (call->before)
            sim_queue_wait(device, call->before);
        call->function(call->argument);
        __atomic_sub_fetch(&pending, 1, __ATOMIC_RELEASE);
        if (call->gate)
            sim_queue_release(device, call->gate);
        free(call);
        pthread_mutex_lock(&caller->mutex);
    }
    pthread_mutex_unlock(&caller->mutex);
    pthread_cond_destroy(&caller->changed);
    pthread_mutex_destroy(&caller->mutex);
    pthread_mutex_destroy(&caller->order);
    free(caller);
    return NULL;
}

static struct caller *caller_new(const struct CUctx_st *context)
{
    struct caller *caller = calloc(1, sizeof *caller);
    if (!caller)
        return NULL;
    caller->context = context;
    caller->last = &caller->first;
    pthread_mutex_init(&caller->order, NULL);
    pthread_mutex_init(&caller->mutex, NULL);
    pthread_cond_init(&caller->changed, NULL);
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all); /* the program's signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, run_calls, caller);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        free(caller);
        return NULL;
    }
    pthread_detach(thread);
    return caller;
}

void caller_close(struct caller *caller)
{
    pthread_mutex_lock(&caller->mutex);
    caller->closing = true;
    pthread_cond_signal(&caller->changed);
    pthread_mutex_unlock(&caller->mutex);
}

static struct caller *caller_of(struct CUstream_st *stream)
{
    struct caller *caller = __atomic_load_n(&stream->caller, __ATOMIC_ACQUIRE);
    if (caller)
        return caller;
    caller = caller_new(stream->context);
    struct caller *other = NULL;
    if (caller && !__atomic_compare_exchange_n(&stream->caller, &other, caller, false,
                                               __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        caller_close(caller);
        return other;
    }
    return caller;
}

CUresult stream_call_between(struct CUstream_st *stream, const struct sim_submission *before,
                             const struct sim_submission *held, stream_function function,
                             void *argument)
{
    struct caller *caller = caller_of(stream);
    struct call *call = caller ? malloc(sizeof *call) : NULL;
    REFUSE_IF(!call, CUDA_ERROR_OUT_OF_MEMORY);
    *call = (struct call){.function = function, .argument = argument};
    __atomic_add_fetch(&pending, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&caller->order);
    call->before = stream_submit(stream, before);
    call->gate = stream_submit(stream, held);
    pthread_mutex_lock(&caller->mutex);
    *caller->last = call;
    caller->last = &call->next;
    pthread_cond_signal(&caller->changed);
    pthread_mutex_unlock(&caller->mutex);
    pthread_mutex_unlock(&caller->order);
    return CUDA_SUCCESS;
}

CUresult stream_call(struct CUstream_st *stream, stream_function function, void *argument)
{
    struct sim_submission event = {.kind = SIM_OPERATION_EVENT};
    struct sim_submission gate = {.kind = SIM_OPERATION_GATE};
    return stream_call_between(stream, &event, &gate, function, argument);
}
