/* Each thread's stack of contexts; the top one is current. */
#include "driver.h"

#define STACK_DEPTH 64

/* A context may end while it is here, and its memory become another one. */
static __thread struct entry {
    struct CUctx_st *context;
    unsigned long long id;
} context_stack[STACK_DEPTH];
static __thread int context_depth;

CUresult context_check(const struct CUctx_st *context, unsigned long long id)
{
    if (!context->alive || (context->id != id && !context->primary))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (__builtin_expect(sim_device_failed(context->device->device), 0) ||
        sim_machine_faulty(driver.machine))
        return fault_answer(context);
    return CUDA_SUCCESS;
}

CUresult context_current(struct CUctx_st **context)
{
    if (__builtin_expect(!__atomic_load_n(&driver.ready, __ATOMIC_ACQUIRE), 0))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (__builtin_expect(stream_call_is_here(), 0))
        return CUDA_ERROR_NOT_PERMITTED;
    if (!context_depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    const struct entry *current = &context_stack[context_depth - 1];
    CUresult result = context_check(current->context, current->id);
    if (result == CUDA_SUCCESS)
        *context = current->context;
    return result;
}

bool context_is_one(const struct CUctx_st *context)
{
    return handle_is(MAGIC_CONTEXT, context);
}

bool context_stack_is_full(void)
{
    return context_depth == STACK_DEPTH;
}

void context_stack_push(struct CUctx_st *context)
{
    context_stack[context_depth++] = (struct entry){context, context->id};
}

void context_stack_drop(const struct CUctx_st *context)
{
    if (context_depth && context_stack[context_depth - 1].context == context)
        context_depth--;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuCtxSetCurrent(CUcontext context)
{
    DRIVER_CHECK();
    if (context && !context_is_one(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context_depth)
        context_depth--;
    if (context)
        context_stack_push(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    DRIVER_CHECK();
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = context_depth ? context_stack[context_depth - 1].context : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    DRIVER_CHECK();
    if (!context_is_one(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context_stack_is_full())
        return CUDA_ERROR_INVALID_VALUE;
    context_stack_push(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    DRIVER_CHECK();
    if (!context_depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_depth--;
    if (context)
        *context = context_stack[context_depth].context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}
