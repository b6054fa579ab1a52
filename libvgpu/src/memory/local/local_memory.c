#include "memory/local/local_memory.h"

#include <stddef.h>
#include <string.h>

#include "compute/cap/gate.h"
#include "compute/cap/throttle.h"
#include "driver/capture.h"
#include "driver/log.h"
#include "driver/real.h"
#include "memory/contexts/context_charge.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/block.h"
#include "memory/ledger/charge.h"
#include "memory/local/local_functions.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define ACCOUNTS 256
#define JUDGED_BYTES ((uint64_t)64 << 20) /* less may be rounded away, or slack */

struct account {
    CUcontext context;     /* NULL: unused */
    uint64_t threads;      /* that the device holds at once */
    struct charge charge;  /* of what it takes beyond the common bytes */
    uint64_t common_bytes; /* a thread: from the beginning … */
    uint64_t taken_bytes;  /* … and now */
    uint32_t in_flight;    /* launches between begin and end */
};

static struct account accounts[ACCOUNTS];
static int account_end;        /* all behind are unused */
static uint32_t account_count; /* atomic */
/* What launches take of a device, as NVML shows it. One that took nothing tells of those that need no
 * more, and only when a second one agrees: the driver may have slack. A forked child's devices are the
 * same. */
static struct taking {
    bool is_seen;         /* a launch took memory: all do */
    uint64_t idle_bytes;  /* a thread: twice so much, or more, took nothing */
    uint64_t doubt_bytes; /* once */
} takings[VGPU_MAX_DEVICES];

void local_memory_after_fork(void)
{
    memset(accounts, 0, sizeof accounts);
    account_end = 0;
    account_count = 0;
    local_functions_after_fork();
}

/* ---- which functions are pending ---- */

/* NULL: an unused one. */
static struct account *find(CUcontext context)
{
    for (int i = 0; i < account_end; i++)
        if (accounts[i].context == context)
            return &accounts[i];
    return context == NULL && account_end < ACCOUNTS ? &accounts[account_end] : NULL;
}

static bool may_grow(const struct local_function *function, const struct account *account)
{
    int device = account->charge.device;
    bool is_asked = function->context != NULL || (function->asked >> device & 1) != 0;
    return !is_asked || (function->bytes_a_thread > takings[device].idle_bytes &&
                         function->bytes_a_thread > account->taken_bytes);
}

static const struct gate_pending pending_work = {local_functions_any_pending,
                                                 local_memory_is_ambiguous};
static bool any_anew; /* pending that was not before */

static void judge(struct local_function *function)
{
    bool is_pending = false;
    for (int i = 0; i < account_end && !is_pending; i++)
        if (accounts[i].context != NULL &&
            (function->context == NULL || function->context == accounts[i].context))
            is_pending = may_grow(function, &accounts[i]);
    any_anew |= is_pending && !function->is_pending;
    gate_announce_pending(&pending_work);
    local_functions_set_pending(function, is_pending);
}

static void judge_all(void)
{
    any_anew = false;
    local_functions_each(judge);
    if (any_anew)
        throttle_forget_functions(); /* or their launches might be prepaid */
}

void local_memory_learnt(const void *function, uint64_t bytes_a_thread, uint64_t devices)
{
    struct local_function *noted = local_functions_find(function);
    if (noted == NULL)
        return;
    noted->asked |= devices;
    if (bytes_a_thread > noted->bytes_a_thread)
        noted->bytes_a_thread = bytes_a_thread;
    judge(noted);
}

bool local_memory_is_ambiguous(void)
{
    return __atomic_load_n(&account_count, __ATOMIC_RELAXED) > 1 && local_functions_any_pending();
}

/* ---- contexts ---- */

/* What a context has that is seen for the first time; it need not be current. False: it does not say. */
static bool open_account(struct account *account, CUcontext context)
{
    size_t bytes = 0;
    int processors = 0, threads = 0;
    CUdevice ordinal;
    CUcontext popped;
    if (real.cuCtxGetLimit == NULL || real.cuCtxGetDevice == NULL ||
        real.cuDeviceGetAttribute == NULL || real.cuCtxPushCurrent_v2 == NULL ||
        real.cuCtxPopCurrent_v2 == NULL || real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return false;
    *account = (struct account){.charge = {.device = DEVICE_UNKNOWN, .kind = VGPU_KIND_OTHER}};
    struct capture_pause pause = capture_pause();
    if (real.cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE) == CUDA_SUCCESS &&
        real.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
        real.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal) ==
            CUDA_SUCCESS &&
        real.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                  ordinal) == CUDA_SUCCESS)
        account->charge.device = devices_find(ordinal);
    capture_resume(pause);
    real.cuCtxPopCurrent_v2(&popped);
    account->threads = (uint64_t)processors * (uint64_t)threads;
    account->common_bytes = account->taken_bytes = bytes;
    account->context = account->charge.device >= 0 ? context : NULL;
    return account->context != NULL;
}

static struct account *find_or_make(CUcontext context)
{
    if (context == NULL || region_open() != REGION_MAPPED)
        return NULL;
    struct account *account = find(context);
    if (account != NULL)
        return account;
    account = find(NULL);
    if (account == NULL)
        log_line(LOG_ERROR, "more than %d contexts: local memory is not charged", ACCOUNTS);
    if (account == NULL || !open_account(account, context))
        return NULL;
    account_end += account == &accounts[account_end];
    __atomic_add_fetch(&account_count, 1, __ATOMIC_RELAXED);
    judge_all();
    return account;
}

void local_memory_context_ended(CUcontext context)
{
    struct account *account = context != NULL ? find(context) : NULL;
    if (account == NULL)
        return;
    charge_cancel(&account->charge);
    *account = (struct account){0};
    __atomic_sub_fetch(&account_count, 1, __ATOMIC_RELAXED);
    local_functions_forget(NULL, context);
    judge_all();
}

/* ---- charges ---- */

static uint64_t cost(const struct account *account, uint64_t bytes_a_thread)
{
    uint64_t bytes, step_bytes = block_known_bytes((uint32_t)account->charge.device);
    if (bytes_a_thread <= account->common_bytes)
        return 0;
    if (__builtin_mul_overflow(bytes_a_thread - account->common_bytes, account->threads, &bytes) ||
        __builtin_add_overflow(bytes, step_bytes - 1, &bytes))
        return UINT64_MAX;
    return bytes / step_bytes * step_bytes;
}

/* What is there is charged, also where that was not reserved: the stack limit was set in between. */
static void set_charge(struct account *account, uint64_t bytes)
{
    struct charge more, *charge = &account->charge;
    if (bytes <= charge->bytes) {
        charge_resize(charge, bytes);
        return;
    }
    charge_force(&more, charge->device, charge->kind, bytes - charge->bytes);
    charge->bytes += more.bytes;
}

/* ---- the stack limit ---- */

struct charge *local_memory_charge(CUcontext context)
{
    struct account *account = find_or_make(context);
    return account != NULL ? &account->charge : NULL;
}

void local_memory_context_made(CUcontext context)
{
    find_or_make(context);
}

uint64_t local_memory_cost(CUcontext context, uint64_t stack_bytes)
{
    return cost(find(context), stack_bytes);
}

void local_memory_limit_set(CUcontext context, uint64_t stack_bytes)
{
    find(context)->taken_bytes = stack_bytes;
    judge_all();
}

/* ---- launches ---- */

/* Charges of this process so far. */
static uint64_t own_charges(int device)
{
    return __atomic_load_n(&region_counters((uint32_t)device)->count, __ATOMIC_RELAXED);
}

static CUresult reserve(struct local_growth *growth, struct account *account)
{
    struct charge *charge = &account->charge;
    uint64_t wanted_bytes = cost(account, growth->bytes_a_thread);
    if (wanted_bytes <= charge->bytes)
        return CUDA_SUCCESS;
    if (!region_claim())
        return CUDA_ERROR_OUT_OF_MEMORY;
    growth->grown_bytes = wanted_bytes - charge->bytes;
    growth->is_sampled = !takings[charge->device].is_seen && growth->grown_bytes >= JUDGED_BYTES &&
                         reconcile_own_bytes((uint32_t)charge->device, &growth->own_bytes);
    CUresult result = charge_resize(charge, wanted_bytes);
    growth->charge_count = own_charges(charge->device);
    return result;
}

static CUresult begin(struct local_growth *growth, CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    contexts_lock();
    struct account *account = find_or_make(context);
    if (account != NULL && growth->bytes_a_thread > account->taken_bytes &&
        growth->bytes_a_thread > takings[account->charge.device].idle_bytes) {
        result = reserve(growth, account);
        growth->context = result == CUDA_SUCCESS ? context : NULL;
        account->in_flight += result == CUDA_SUCCESS;
    }
    contexts_unlock();
    return result;
}

CUresult local_memory_begin(struct local_growth *growth, const void *function, CUstream stream)
{
    CUdevice ordinal;
    *growth = (struct local_growth){0};
    if (region_open() != REGION_MAPPED || capture_is_active(stream) ||
        !devices_ordinal_of_stream(stream, &ordinal))
        return CUDA_SUCCESS;
    growth->bytes_a_thread = local_memory_ask(function, ordinal, devices_find(ordinal));
    return begin(growth, devices_own_context_of(stream));
}

CUresult local_memory_begin_graph(struct local_growth *growth, uint64_t bytes_a_thread)
{
    CUcontext context = NULL;
    *growth = (struct local_growth){.bytes_a_thread = bytes_a_thread};
    if (bytes_a_thread == 0 || region_open() != REGION_MAPPED || real.cuCtxGetCurrent == NULL ||
        real.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    return begin(growth, context);
}

/* Whether the launch took what was reserved for it. It did, unless the contrary is seen: no other thread
 * of this process took memory or gave it back meanwhile. Code that is loaded with the launch is little. */
static bool measure(const struct local_growth *growth, int device)
{
    uint64_t own_bytes;
    struct taking *taking = &takings[device];
    if (!growth->is_sampled || own_charges(device) != growth->charge_count ||
        !reconcile_own_bytes((uint32_t)device, &own_bytes))
        return true;
    if (own_bytes >= growth->own_bytes + growth->grown_bytes / 2) {
        *taking = (struct taking){.is_seen = true};
        return true;
    }
    if (growth->bytes_a_thread > taking->doubt_bytes) {
        taking->idle_bytes = taking->doubt_bytes;
        taking->doubt_bytes = growth->bytes_a_thread;
    } else if (growth->bytes_a_thread > taking->idle_bytes) {
        taking->idle_bytes = growth->bytes_a_thread;
    }
    return false;
}

CUresult local_memory_end(struct local_growth *growth, CUresult result)
{
    if (growth->context == NULL)
        return result;
    contexts_lock();
    struct account *account = find(growth->context);
    if (account != NULL && account->in_flight > 0) {
        account->in_flight--;
        if (result == CUDA_SUCCESS && measure(growth, account->charge.device) &&
            growth->bytes_a_thread > account->taken_bytes)
            account->taken_bytes = growth->bytes_a_thread;
        if (account->in_flight == 0)
            set_charge(account, cost(account, account->taken_bytes));
        judge_all();
    }
    contexts_unlock();
    growth->context = NULL;
    return result;
}
