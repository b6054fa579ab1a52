/* Each thread's stack of contexts; the top one is current. */
#include <sys/syscall.h>
#include <unistd.h>

#include "context_memory.h"
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
    REFUSE_IF(!context->alive || (context->id != id && !context->primary),
              CUDA_ERROR_CONTEXT_IS_DESTROYED);
    if (__builtin_expect(sim_device_failed(context->device->device), 0) ||
        sim_machine_faulty(driver.machine))
        return fault_answer(context);
    return CUDA_SUCCESS;
}

CUresult context_current(struct CUctx_st **context)
{
    REFUSE_IF(__builtin_expect(!__atomic_load_n(&driver.ready, __ATOMIC_ACQUIRE), 0),
              CUDA_ERROR_NOT_INITIALIZED);
    REFUSE_IF(__builtin_expect(stream_call_is_here(), 0), CUDA_ERROR_NOT_PERMITTED);
    REFUSE_IF(!context_depth, CUDA_ERROR_INVALID_CONTEXT);
    const struct entry *current = &context_stack[context_depth - 1];
    CHECK(context_check(current->context, current->id));
    *context = current->context;
    return CUDA_SUCCESS;
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

/* glibc has no name for it before 2.30. */
static int own_thread(void)
{
    return (int)syscall(SYS_gettid);
}

static bool change_holder(struct CUctx_st *context, int from, int to)
{
    return __atomic_compare_exchange_n(&context->holder, &from, to, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

/* A green context is current to one thread at a time, as documented; what the driver answers to another one
 * is not. A thread that has ended holds none. */
static CUresult hold(struct CUctx_st *context)
{
    if (!context_settings_of(context)->green)
        return CUDA_SUCCESS;
    int self = own_thread(), holder = __atomic_load_n(&context->holder, __ATOMIC_ACQUIRE);
    if (holder == self)
        return CUDA_SUCCESS;
    bool is_held = holder && syscall(SYS_tgkill, getpid(), holder, 0) == 0;
    return !is_held && change_holder(context, holder, self) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_CONTEXT;
}

/* Takes off the top of the stack. */
static void pop(void)
{
    struct entry top = context_stack[--context_depth];
    if (!top.context->holder || top.context->id != top.id)
        return;
    for (int i = 0; i < context_depth; i++)
        if (context_stack[i].context == top.context)
            return;
    change_holder(top.context, own_thread(), 0);
}

void context_stack_drop(const struct CUctx_st *context)
{
    if (context_depth && context_stack[context_depth - 1].context == context)
        pop();
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuCtxSetCurrent(CUcontext context)
{
    DRIVER_CHECK();
    REFUSE_IF(context && !context_is_one(context), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(context ? hold(context) : CUDA_SUCCESS);
    if (context_depth)
        pop();
    if (context)
        context_stack_push(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    DRIVER_CHECK();
    INVALID_IF(!context);
    *context = context_depth ? context_stack[context_depth - 1].context : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    DRIVER_CHECK();
    REFUSE_IF(!context_is_one(context), CUDA_ERROR_INVALID_CONTEXT);
    INVALID_IF(context_stack_is_full());
    CHECK(hold(context));
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
    REFUSE_IF(!context_depth, CUDA_ERROR_INVALID_CONTEXT);
    pop();
    if (context)
        *context = context_stack[context_depth].context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}
