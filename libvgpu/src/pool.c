#include "pool.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "capture.h"
#include "charge.h"
#include "devices.h"
#include "log.h"
#include "real.h"
#include "region.h"
#include "vgpu/contract.h"

#define LEAST_GRANULE_BYTES 512
#define MOST_GRANULE_BYTES (32u << 20)
#define RECORDS_AT_ONCE 64 /* in one mapping */

enum pool_form { POOL_UNUSED, POOL_OF_STREAMS, POOL_OF_GRAPHS, POOL_DESTROYED };

struct pool {
    struct charge_owner owner; /* of its allocations; first */
    pthread_mutex_t lock;
    struct pool *next; /* set once */
    enum pool_form form;
    CUmemoryPool handle; /* of streams */
    CUdevice ordinal;    /* of graphs */
    int device;          /* index in `limits`; below 0: see reserve_more */
    bool is_host;        /* never charged */
    uint64_t charged_bytes;
    uint64_t used_bytes;      /* of its allocations that we know, rounded */
    uint64_t granule_bytes;   /* steps in which the driver was seen to reserve */
    uint64_t elsewhere_bytes; /* reserved by the driver, but charged elsewhere */
    uint64_t begun_bytes;     /* reserved by the pool_begin that has not ended */
    uint64_t serial;          /* changes with the pool that the record stands for */
    uint64_t epoch;           /* of graphs: see pool_end_graphs */
    int cancelling;           /* of the thread that holds the lock */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* for writers */
static struct pool *records;
static int is_slack; /* atomic: something was freed since the last look at what the driver keeps */

/* Where the kernel gave no memory for a record: takes nothing, so that nothing is free. */
static struct pool refusing = {.lock = PTHREAD_MUTEX_INITIALIZER, .device = DEVICE_NOT_OURS};

static uint64_t rounded(uint64_t bytes, uint64_t step_bytes)
{
    uint64_t sum;
    return __builtin_add_overflow(bytes, step_bytes - 1, &sum) ? UINT64_MAX / 2
                                                               : sum / step_bytes * step_bytes;
}

/* A thread cancelled inside the driver would keep the pool for ever. */
static void lock_pool(struct pool *pool)
{
    int cancelling;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    pthread_mutex_lock(&pool->lock);
    pool->cancelling = cancelling;
}

static void unlock_pool(struct pool *pool)
{
    int cancelling = pool->cancelling;
    pthread_mutex_unlock(&pool->lock);
    pthread_setcancelstate(cancelling, NULL);
}

/* ---- what the driver keeps ---- */

/* Asks the driver for one of the two figures of a pool, less what is charged elsewhere. False where
 * nobody can be asked. */
static bool ask(const struct pool *pool, bool reserved, uint64_t *result_bytes)
{
    uint64_t bytes = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    struct capture_pause pause = capture_pause();
    if (pool->form == POOL_OF_GRAPHS && real.cuDeviceGetGraphMemAttribute != NULL)
        result = real.cuDeviceGetGraphMemAttribute(pool->ordinal,
                                                   reserved ? CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
                                                            : CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
                                                   &bytes);
    else if (pool->form == POOL_OF_STREAMS && real.cuMemPoolGetAttribute != NULL)
        result = real.cuMemPoolGetAttribute(pool->handle,
                                            reserved ? CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
                                                     : CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                            &bytes);
    capture_resume(pause);
    if (result == CUDA_SUCCESS)
        *result_bytes = bytes > pool->elsewhere_bytes ? bytes - pool->elsewhere_bytes : 0;
    return result == CUDA_SUCCESS;
}

/* The bytes that the driver has reserved for the pool and that are charged here. Where it does not
 * say the charge stays as it is. */
static uint64_t reserved_bytes(const struct pool *pool)
{
    uint64_t bytes;
    return ask(pool, true, &bytes) ? bytes : pool->charged_bytes;
}

/* The bytes of it that are in use. The driver knows of frees that wait for their turn, and of those
 * that a graph did. */
static uint64_t used_bytes(const struct pool *pool)
{
    uint64_t bytes;
    if (ask(pool, false, &bytes))
        return bytes;
    return pool->form == POOL_OF_GRAPHS ? pool->charged_bytes : pool->used_bytes;
}

/* Gives back what is charged beyond `bytes`. */
static void shrink_charge(struct pool *pool, uint64_t bytes)
{
    if (bytes >= pool->charged_bytes)
        return;
    charge_cancel(&(struct charge){
        .device = pool->device, .kind = VGPU_KIND_ASYNC, .bytes = pool->charged_bytes - bytes});
    pool->charged_bytes = bytes;
}

static void follow_driver(struct pool *pool)
{
    uint64_t bytes = reserved_bytes(pool);
    if (bytes > pool->charged_bytes) { /* it is taken already */
        struct charge more;
        charge_force(&more, pool->device, VGPU_KIND_ASYNC, bytes - pool->charged_bytes);
        pool->charged_bytes = bytes;
    }
    shrink_charge(pool, bytes);
}

static void trim(struct pool *pool)
{
    struct capture_pause pause = capture_pause();
    pool->epoch++;
    if (pool->form == POOL_OF_GRAPHS && real.cuDeviceGraphMemTrim != NULL)
        real.cuDeviceGraphMemTrim(pool->ordinal);
    else if (pool->form == POOL_OF_STREAMS && real.cuMemPoolTrimTo != NULL)
        real.cuMemPoolTrimTo(pool->handle, 0);
    capture_resume(pause);
}

static bool is_live(const struct pool *pool)
{
    enum pool_form form = __atomic_load_n(&pool->form, __ATOMIC_ACQUIRE);
    return form == POOL_OF_STREAMS || form == POOL_OF_GRAPHS;
}

/* For charge_on_shortage: what is kept and not used goes back. */
static bool reclaim(int device)
{
    uint64_t given_back_bytes = 0;
    for (struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE); pool != NULL;
         pool = pool->next) {
        /* only those of the device are locked: a launch may hold those of others */
        if (!is_live(pool) || pool->device != device)
            continue;
        lock_pool(pool);
        uint64_t before_bytes = pool->charged_bytes;
        if (before_bytes > 0) {
            follow_driver(pool);
            if (pool->charged_bytes > used_bytes(pool) && !capture_is_mine()) {
                trim(pool);
                follow_driver(pool);
            }
            if (before_bytes > pool->charged_bytes)
                given_back_bytes += before_bytes - pool->charged_bytes;
        }
        unlock_pool(pool);
    }
    return given_back_bytes > 0;
}

/* ---- records ---- */

/* Nobody tells any more what the driver keeps: what lies in its last steps goes last. */
static void settle_destroyed(struct pool *pool)
{
    if (pool->used_bytes == 0 || pool->granule_bytes == LEAST_GRANULE_BYTES)
        shrink_charge(pool, pool->used_bytes);
    if (pool->used_bytes == 0 && pool->elsewhere_bytes == 0) /* pieces elsewhere know the record */
        __atomic_store_n(&pool->form, POOL_UNUSED, __ATOMIC_RELEASE);
}

/* The handle is nobody's any more, or another pool's by now. */
static void part_from_handle(struct pool *pool)
{
    pool->serial++;
    __atomic_store_n(&pool->form, POOL_DESTROYED, __ATOMIC_RELEASE);
    settle_destroyed(pool);
}

static void release(struct charge_owner *owner, const struct allocation *allocation)
{
    struct pool *pool = (struct pool *)owner;
    lock_pool(pool);
    uint64_t bytes = charge_rounded(allocation->bytes);
    pool->used_bytes -= bytes < pool->used_bytes ? bytes : pool->used_bytes;
    if (pool->form == POOL_DESTROYED)
        settle_destroyed(pool);
    unlock_pool(pool);
    __atomic_store_n(&is_slack, 1, __ATOMIC_RELEASE);
}

/* In the child of a fork: its parent's pools are not its own. */
static void forget_all(void)
{
    pthread_mutex_init(&list_lock, NULL);
    pthread_mutex_init(&refusing.lock, NULL);
    is_slack = 0;
    for (struct pool *pool = records; pool != NULL; pool = pool->next) {
        pthread_mutex_init(&pool->lock, NULL);
        pool->form = POOL_UNUSED;
    }
}

/* A record that is not in use, of a new mapping if need be (the hook may run inside the program's
 * own allocator). */
static struct pool *spare_record(void)
{
    for (struct pool *pool = records; pool != NULL; pool = pool->next)
        if (pool->form == POOL_UNUSED)
            return pool;
    struct pool *made = mmap(NULL, RECORDS_AT_ONCE * sizeof *made, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    for (int i = 0; i < RECORDS_AT_ONCE; i++) {
        pthread_mutex_init(&made[i].lock, NULL);
        made[i].next = i + 1 < RECORDS_AT_ONCE ? &made[i + 1] : records;
    }
    __atomic_store_n(&records, made, __ATOMIC_RELEASE);
    return made;
}

static bool is_record_of(const struct pool *pool, enum pool_form form, CUmemoryPool handle,
                         CUdevice ordinal)
{
    return __atomic_load_n(&pool->form, __ATOMIC_ACQUIRE) == form &&
           (form == POOL_OF_STREAMS ? pool->handle == handle : pool->ordinal == ordinal);
}

/* The record, locked. It may come to stand for another pool until it is. */
static struct pool *find_locked(enum pool_form form, CUmemoryPool handle, CUdevice ordinal)
{
    struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE);
    for (; pool != NULL; pool = pool->next) {
        if (!is_record_of(pool, form, handle, ordinal))
            continue;
        lock_pool(pool);
        if (is_record_of(pool, form, handle, ordinal))
            return pool;
        unlock_pool(pool);
    }
    return NULL;
}

/* False: there is no memory for a record. */
static bool add(enum pool_form form, CUmemoryPool handle, CUdevice ordinal, int device,
                bool is_host)
{
    int cancelling;
    region_on_child(forget_all); /* first: a child must find the lock free */
    charge_on_shortage(reclaim);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    pthread_mutex_lock(&list_lock);
    struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE);
    while (pool != NULL && !is_record_of(pool, form, handle, ordinal))
        pool = pool->next;
    if (pool == NULL && (pool = spare_record()) != NULL) {
        pool->owner.release = release;
        pool->handle = handle;
        pool->ordinal = ordinal;
        pool->device = device;
        pool->is_host = is_host;
        pool->charged_bytes = pool->used_bytes = pool->elsewhere_bytes = pool->begun_bytes = 0;
        pool->granule_bytes = LEAST_GRANULE_BYTES;
        pool->serial++;
        pool->epoch++; /* never 0, and never what a pool of before said */
        __atomic_store_n(&pool->form, form, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&list_lock);
    pthread_setcancelstate(cancelling, NULL);
    return pool != NULL;
}

static struct pool *add_locked(enum pool_form form, CUmemoryPool handle, CUdevice ordinal,
                               int device)
{
    struct pool *pool = NULL;
    while (pool == NULL && add(form, handle, ordinal, device, false))
        pool = find_locked(form, handle, ordinal);
    if (pool == NULL)
        lock_pool(pool = &refusing);
    return pool;
}

void pool_placed(CUmemoryPool handle, CUmemLocation location, CUmemAllocationType type, bool is_new)
{
    if (region_open() != REGION_MAPPED)
        return;
    bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    /* managed memory may come to a GPU, wherever it begins */
    bool is_host = !on_device && type == CU_MEM_ALLOCATION_TYPE_PINNED;
    int device = on_device ? devices_find(location.id) : devices_current();
    struct pool *stale = is_new ? find_locked(POOL_OF_STREAMS, handle, 0) : NULL;
    if (stale != NULL) {
        part_from_handle(stale);
        unlock_pool(stale);
    }
    add(POOL_OF_STREAMS, handle, 0, device >= 0 || on_device ? device : 0, is_host);
}

static struct pool *charged(struct pool *pool)
{
    if (!pool->is_host)
        return pool;
    unlock_pool(pool);
    return NULL;
}

struct pool *pool_lock(CUmemoryPool handle, CUstream stream)
{
    if (region_open() == REGION_NONE)
        return NULL;
    struct pool *pool = find_locked(POOL_OF_STREAMS, handle, 0);
    if (pool != NULL)
        return charged(pool);
    /* Not made through us: some GPU's default pool, or one that nobody told us of. */
    int count = 0;
    CUmemoryPool each = NULL;
    if (real.cuDeviceGetCount != NULL && real.cuDeviceGetDefaultMemPool != NULL)
        real.cuDeviceGetCount(&count);
    for (CUdevice ordinal = 0; ordinal < count; ordinal++)
        if (real.cuDeviceGetDefaultMemPool(&each, ordinal) == CUDA_SUCCESS && each == handle)
            return add_locked(POOL_OF_STREAMS, handle, 0, devices_find(ordinal));
    int device = devices_of_stream(stream);
    return device == DEVICE_UNKNOWN ? NULL : add_locked(POOL_OF_STREAMS, handle, 0, device);
}

struct pool *pool_lock_of_stream(CUstream stream, CUmemoryPool *handle)
{
    CUdevice ordinal;
    CUmemoryPool now = NULL;
    if (region_open() == REGION_NONE || !devices_ordinal_of_stream(stream, &ordinal) ||
        real.cuDeviceGetMemPool == NULL || real.cuDeviceGetMemPool(handle, ordinal) != CUDA_SUCCESS)
        return NULL;
    for (;; *handle = now) {
        struct pool *pool = find_locked(POOL_OF_STREAMS, *handle, 0);
        if (pool == NULL)
            pool = add_locked(POOL_OF_STREAMS, *handle, 0, devices_find(ordinal));
        /* Locked it can neither end nor change; until then it can. */
        if (real.cuDeviceGetMemPool(&now, ordinal) != CUDA_SUCCESS || now == *handle)
            return charged(pool);
        unlock_pool(pool);
    }
}

struct pool *pool_lock_of_graphs(CUdevice device)
{
    if (region_open() == REGION_NONE)
        return NULL;
    struct pool *pool = find_locked(POOL_OF_GRAPHS, NULL, device);
    return pool != NULL ? pool : add_locked(POOL_OF_GRAPHS, NULL, device, devices_find(device));
}

/* ---- allocations ---- */

/* Reserves what the pool lacks for `bytes` more. */
static bool reserve_more(struct pool *pool, uint64_t bytes, struct charge *charge)
{
    uint64_t used = pool->charged_bytes > 0 ? used_bytes(pool) : 0;
    uint64_t spare = pool->charged_bytes > used ? pool->charged_bytes - used : 0;
    uint64_t wanted = charge_rounded(bytes);
    uint64_t lacking = wanted > spare ? wanted - spare : 0;
    *charge = (struct charge){.device = pool->device, .kind = VGPU_KIND_ASYNC};
    if (lacking == 0)
        return pool->device >= 0;
    uint64_t steps = rounded(lacking, pool->granule_bytes);
    bool reserved = charge_try(charge, pool->device, VGPU_KIND_ASYNC, steps) ||
                    (steps > lacking && charge_try(charge, pool->device, VGPU_KIND_ASYNC, lacking));
    if (reserved) {
        pool->charged_bytes += charge->bytes;
        pool->begun_bytes = charge->bytes;
    }
    return reserved;
}

CUresult pool_begin(struct pool *pool, uint64_t bytes)
{
    struct charge charge;
    uint64_t serial = pool->serial;
    pool->begun_bytes = 0;
    bool reserved = reserve_more(pool, bytes, &charge);
    if (!reserved && pool->device >= 0) {
        unlock_pool(pool); /* it is looked through as well */
        charge_reclaim(pool->device);
        lock_pool(pool);
        reserved = pool->serial == serial && reserve_more(pool, bytes, &charge);
    }
    if (reserved)
        return CUDA_SUCCESS;
    unlock_pool(pool);
    charge.bytes = bytes;
    return charge_refuse(&charge);
}

/* It took more than the bytes: larger steps than those seen so far. */
static void note_steps(struct pool *pool, uint64_t reserved)
{
    uint64_t granule = reserved & -reserved;
    if (granule > pool->granule_bytes)
        pool->granule_bytes = granule < MOST_GRANULE_BYTES ? granule : MOST_GRANULE_BYTES;
}

bool pool_end(struct pool *pool, uint64_t bytes, const CUdeviceptr *address)
{
    uint64_t reserved;
    bool told = ask(pool, true, &reserved);
    struct charge more;
    if (told && reserved > pool->charged_bytes) {
        if (!charge_try(&more, pool->device, VGPU_KIND_ASYNC, reserved - pool->charged_bytes))
            return false;
        pool->charged_bytes = reserved;
        note_steps(pool, reserved);
    } else if (told) {
        shrink_charge(pool, reserved);
    } else if (address == NULL) {
        /* no pool that the driver knows took nothing */
        shrink_charge(pool, pool->charged_bytes - pool->begun_bytes);
        if (pool->charged_bytes == 0 && is_live(pool))
            part_from_handle(pool);
    }
    struct charge charge = {.device = pool->device, .kind = VGPU_KIND_ASYNC, .bytes = bytes};
    if (address != NULL)
        pool->used_bytes += charge_rounded(bytes);
    unlock_pool(pool);
    if (address != NULL) /* unlocked: what stood there before may be of this pool, too */
        charge_keep_lasting(&charge, SPACE_ADDRESS, *address, &pool->owner);
    return true;
}

uint64_t pool_epoch(const struct pool *pool)
{
    return pool->epoch;
}

void pool_end_graphs(struct pool *pool, uint64_t bytes, uint64_t *kept_bytes, uint64_t *epoch)
{
    uint64_t before_bytes = pool->charged_bytes - pool->begun_bytes;
    uint64_t reserved = reserved_bytes(pool);
    if (reserved > pool->charged_bytes)
        note_steps(pool, reserved);
    follow_driver(pool); /* limit or not: it is launched */
    if (pool->charged_bytes < before_bytes + bytes)
        pool->epoch++; /* some of it was there, and may have been another graph's */
    *kept_bytes = pool->charged_bytes;
    *epoch = pool->epoch;
    unlock_pool(pool);
}

void pool_refresh(struct pool *pool)
{
    if (is_live(pool))
        follow_driver(pool);
    unlock_pool(pool);
}

void pool_trimmed(struct pool *pool)
{
    pool->epoch++;
    pool_refresh(pool);
}

void pool_after_wait(void)
{
    if (__builtin_expect(!__atomic_load_n(&is_slack, __ATOMIC_ACQUIRE), 1))
        return;
    __atomic_store_n(&is_slack, 0, __ATOMIC_RELEASE);
    for (struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE); pool != NULL;
         pool = pool->next) {
        if (__atomic_load_n(&pool->form, __ATOMIC_ACQUIRE) != POOL_OF_STREAMS ||
            pool->charged_bytes <= pool->used_bytes)
            continue;
        lock_pool(pool);
        if (pool->form == POOL_OF_STREAMS && used_bytes(pool) > pool->used_bytes)
            __atomic_store_n(&is_slack, 1, __ATOMIC_RELEASE); /* a free waits for another stream */
        pool_refresh(pool);
    }
}

/* ---- the end of a pool ---- */

struct pool *pool_destroying(CUmemoryPool handle)
{
    struct pool *pool = find_locked(POOL_OF_STREAMS, handle, 0);
    if (pool != NULL && !pool->is_host && pool->device >= 0) {
        trim(pool);
        follow_driver(pool);
    }
    return pool;
}

void pool_destroyed(struct pool *pool, bool done)
{
    if (pool == NULL)
        return;
    if (done) /* whoever got the same handle meanwhile waits for the lock, and looks again */
        part_from_handle(pool);
    unlock_pool(pool);
}

struct pool *pool_owning(struct charge_owner *owner)
{
    return owner != NULL && owner->release == release ? (struct pool *)owner : NULL;
}

void pool_hand_over(struct pool *pool, uint64_t bytes)
{
    lock_pool(pool);
    pool->elsewhere_bytes += bytes;
    pool->used_bytes -= bytes < pool->used_bytes ? bytes : pool->used_bytes;
    shrink_charge(pool, pool->charged_bytes > bytes ? pool->charged_bytes - bytes : 0);
    unlock_pool(pool);
}

void pool_took_back(struct pool *pool, uint64_t bytes)
{
    lock_pool(pool);
    pool->elsewhere_bytes -= bytes < pool->elsewhere_bytes ? bytes : pool->elsewhere_bytes;
    if (pool->form == POOL_OF_STREAMS)
        follow_driver(pool);
    else if (pool->form == POOL_DESTROYED)
        settle_destroyed(pool);
    unlock_pool(pool);
}
