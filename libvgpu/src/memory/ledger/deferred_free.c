#include "memory/ledger/deferred_free.h"

#include <stddef.h>

#include "driver/capture.h"
#include "driver/real.h"
#include "memory/ledger/charge.h"
#include "slice/devices.h"
#include "slice/locks.h"

#define MOST_EVENTS 64 /* what is freed beyond these stays charged until its context ends */

struct late {
    CUevent event;
    CUcontext context;
    bool is_held; /* its context may be ending */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct late frees[MOST_EVENTS];
static int count; /* atomic; written under the lock */

void deferred_free_after_fork(void)
{
    lock_reset(&lock);
    count = 0; /* the map of allocations forgets the charges */
}

/* The driver is called under it. */
static int enter(void)
{
    return lock_take_whole(&lock, LOCK_DEFERRED_FREES);
}

static void leave(int cancelling)
{
    lock_give_back_whole(&lock, cancelling);
}

/* ---- events ---- */

/* Under the lock, as all below. */
static void drop(int at)
{
    frees[at] = frees[count - 1];
    __atomic_store_n(&count, count - 1, __ATOMIC_RELEASE);
}

static void look(void)
{
    struct capture_pause pause = capture_pause();
    for (int i = count - 1; i >= 0; i--) {
        struct allocation taken;
        uint64_t event = (uint64_t)(uintptr_t)frees[i].event;
        if (frees[i].is_held || real.cuEventQuery(frees[i].event) == CUDA_ERROR_NOT_READY)
            continue;
        if (allocation_map_take(SPACE_LATE, event, &taken))
            charge_taken(&taken, true);
        real.cuEventDestroy_v2(frees[i].event);
        drop(i);
    }
    capture_resume(pause);
}

/* An event behind all that is on the stream now; NULL: there is none to be had. */
static CUevent record(CUstream stream, CUcontext context)
{
    CUevent event = NULL;
    CUcontext popped;
    struct capture_pause pause = capture_pause();
    if (real.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        if (real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
            event = NULL;
        } else if (real.cuEventRecord(event, stream) != CUDA_SUCCESS) {
            real.cuEventDestroy_v2(event);
            event = NULL;
        }
        real.cuCtxPopCurrent_v2(&popped);
    }
    capture_resume(pause);
    return event;
}

static void reclaim(int device)
{
    (void)device;
    deferred_free_look();
}

/* ---- what is freed ---- */

void deferred_free_put(const struct allocation *taken, CUstream stream)
{
    CUcontext context = devices_context_of(stream);
    struct allocation late = *taken;
    int cancelling = enter();
    charge_on_shortage(reclaim);
    if (count == MOST_EVENTS)
        look();
    CUevent event = context != NULL && count < MOST_EVENTS ? record(stream, context) : NULL;
    late.space = SPACE_LATE;
    late.context = charge_context(context);
    /* without an event it ends with the context */
    late.address = (uint64_t)(uintptr_t)event | (event == NULL ? taken->address | 1 : 0);
    charge_taken(&late, context == NULL);
    if (event != NULL) {
        frees[count] = (struct late){event, context, false};
        __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
        look();
    }
    leave(cancelling);
}

void deferred_free_look(void)
{
    if (__builtin_expect(__atomic_load_n(&count, __ATOMIC_ACQUIRE) == 0, 1))
        return;
    int cancelling = enter();
    look();
    leave(cancelling);
}

void deferred_free_hold_context(CUcontext context)
{
    if (__atomic_load_n(&count, __ATOMIC_ACQUIRE) == 0)
        return;
    int cancelling = enter();
    for (int i = 0; i < count; i++)
        if (frees[i].context == context)
            frees[i].is_held = true;
    leave(cancelling);
}

void deferred_free_let_go_context(CUcontext context, bool has_ended)
{
    if (__atomic_load_n(&count, __ATOMIC_ACQUIRE) == 0)
        return;
    int cancelling = enter();
    for (int i = count - 1; i >= 0; i--) {
        if (frees[i].context != context)
            continue;
        frees[i].is_held = false;
        if (has_ended) /* the driver has ended the event */
            drop(i);
    }
    leave(cancelling);
}
