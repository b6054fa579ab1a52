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
    uint64_t pending_bytes;   /* reserved by pool_begin for the call that is under way */
    int cancelling;           /* of the thread that holds the lock */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* for writers */
static struct pool *records;
static int is_slack; /* atomic: something was freed since the last look at what the driver keeps */

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

/* The bytes that the driver has reserved for the pool and that are charged here; false: it does not
 * tell. */
static bool ask_reserved(const struct pool *pool, uint64_t *reserved)
{
    uint64_t bytes = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    struct capture_pause pause = capture_pause();
    if (pool->form == POOL_OF_GRAPHS && real.cuDeviceGetGraphMemAttribute != NULL)
        result = real.cuDeviceGetGraphMemAttribute(pool->ordinal,
                                                   CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    else if (pool->form == POOL_OF_STREAMS && real.cuMemPoolGetAttribute != NULL)
        result =
            real.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
    capture_resume(pause);
    *reserved = bytes > pool->elsewhere_bytes ? bytes - pool->elsewhere_bytes : 0;
    return result == CUDA_SUCCESS;
}

/* The bytes of it that are in use. */
static uint64_t used_bytes(const struct pool *pool)
{
    uint64_t bytes = pool->used_bytes;
    if (pool->form == POOL_OF_GRAPHS && real.cuDeviceGetGraphMemAttribute != NULL) {
        struct capture_pause pause = capture_pause();
        bytes = pool->charged_bytes;
        real.cuDeviceGetGraphMemAttribute(pool->ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
                                          &bytes);
        capture_resume(pause);
    }
    return bytes;
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
    uint64_t bytes;
    if (!ask_reserved(pool, &bytes))
        return;                        /* the charge stays as it is */
    if (bytes > pool->charged_bytes) { /* it is taken already */
        struct charge more;
        charge_force(&more, pool->device, VGPU_KIND_ASYNC, bytes - pool->charged_bytes);
        pool->charged_bytes = bytes;
    }
    shrink_charge(pool, bytes);
}

static void trim(const struct pool *pool)
{
    struct capture_pause pause = capture_pause();
    if (pool->form == POOL_OF_GRAPHS && real.cuDeviceGraphMemTrim != NULL)
        real.cuDeviceGraphMemTrim(pool->ordinal);
    else if (pool->form == POOL_OF_STREAMS && real.cuMemPoolTrimTo != NULL)
        real.cuMemPoolTrimTo(pool->handle, 0);
    capture_resume(pause);
}

/* For charge_on_shortage: what is kept and not used goes back. */
static bool reclaim(int device)
{
    uint64_t given_back_bytes = 0;
    for (struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE); pool != NULL;
         pool = pool->next) {
        /* only those of the device are locked: a launch may hold those of others */
        if ((pool->form != POOL_OF_STREAMS && pool->form != POOL_OF_GRAPHS) ||
            pool->device != device)
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
    if (pool->used_bytes == 0)
        __atomic_store_n(&pool->form, POOL_UNUSED, __ATOMIC_RELEASE);
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

static struct pool *find(enum pool_form form, CUmemoryPool handle, CUdevice ordinal)
{
    struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE);
    while (pool != NULL && !is_record_of(pool, form, handle, ordinal))
        pool = pool->next;
    return pool;
}

static struct pool *find_or_add(enum pool_form form, CUmemoryPool handle, CUdevice ordinal,
                                int device, bool is_host)
{
    struct pool *pool = find(form, handle, ordinal);
    if (pool != NULL)
        return pool;
    int cancelling;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    pthread_mutex_lock(&list_lock);
    region_on_child(forget_all);
    charge_on_shortage(reclaim);
    pool = find(form, handle, ordinal);
    if (pool == NULL && (pool = spare_record()) != NULL) {
        pool->owner.release = release;
        pool->handle = handle;
        pool->ordinal = ordinal;
        pool->device = device;
        pool->is_host = is_host;
        pool->charged_bytes = pool->used_bytes = pool->elsewhere_bytes = 0;
        pool->granule_bytes = LEAST_GRANULE_BYTES;
        __atomic_store_n(&pool->form, form, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&list_lock);
    pthread_setcancelstate(cancelling, NULL);
    return pool;
}

void pool_placed(CUmemoryPool handle, CUmemLocation location, CUmemAllocationType type)
{
    if (region_open() != REGION_MAPPED)
        return;
    bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    /* managed memory may come to a GPU, wherever it begins */
    bool is_host = !on_device && type == CU_MEM_ALLOCATION_TYPE_PINNED;
    int device = on_device ? devices_find(location.id) : devices_current();
    find_or_add(POOL_OF_STREAMS, handle, 0, device >= 0 || on_device ? device : 0, is_host);
}

void pool_made(CUmemoryPool handle, CUmemLocation location, CUmemAllocationType type)
{
    struct pool *stale = region_open() == REGION_MAPPED ? find(POOL_OF_STREAMS, handle, 0) : NULL;
    if (stale != NULL) {
        lock_pool(stale);
        __atomic_store_n(&stale->form, POOL_DESTROYED, __ATOMIC_RELEASE);
        settle_destroyed(stale);
        unlock_pool(stale);
    }
    pool_placed(handle, location, type);
}

static struct pool *charged(struct pool *pool)
{
    return pool != NULL && !pool->is_host ? pool : NULL;
}

/* One that was not made through us: some GPU's default pool, or one that nobody told us of. */
static CUresult add_unknown(struct pool **pool, CUmemoryPool handle, CUstream stream)
{
    int count = 0;
    int device;
    CUresult result = CUDA_SUCCESS;
    CUmemoryPool each = NULL;
    *pool = NULL;
    if (real.cuDeviceGetCount != NULL && real.cuDeviceGetDefaultMemPool != NULL)
        result = real.cuDeviceGetCount(&count);
    for (CUdevice ordinal = 0; ordinal < count && result == CUDA_SUCCESS; ordinal++) {
        result = real.cuDeviceGetDefaultMemPool(&each, ordinal);
        if (result == CUDA_SUCCESS && each == handle) {
            *pool = find_or_add(POOL_OF_STREAMS, handle, 0, devices_find(ordinal), false);
            return CUDA_SUCCESS;
        }
    }
    if (result == CUDA_SUCCESS)
        result = devices_ask_stream(stream, &device);
    if (result == CUDA_SUCCESS && device != DEVICE_UNKNOWN)
        *pool = find_or_add(POOL_OF_STREAMS, handle, 0, device, false);
    return result;
}

CUresult pool_to_take(struct pool **pool, CUmemoryPool handle, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    *pool = NULL;
    if (region_open() == REGION_NONE)
        return result;
    *pool = find(POOL_OF_STREAMS, handle, 0);
    if (*pool == NULL)
        result = add_unknown(pool, handle, stream);
    *pool = charged(*pool);
    return result;
}

struct pool *pool_of(CUmemoryPool handle, CUstream stream)
{
    struct pool *pool;
    return pool_to_take(&pool, handle, stream) == CUDA_SUCCESS ? pool : NULL;
}

CUresult pool_of_stream(struct pool **pool, CUstream stream)
{
    CUdevice ordinal;
    bool is_known;
    CUmemoryPool handle = NULL;
    *pool = NULL;
    if (region_open() == REGION_NONE || real.cuDeviceGetMemPool == NULL)
        return CUDA_SUCCESS;
    CUresult result = devices_ask_stream_ordinal(stream, &ordinal, &is_known);
    if (result == CUDA_SUCCESS && is_known)
        result = real.cuDeviceGetMemPool(&handle, ordinal);
    if (result != CUDA_SUCCESS || !is_known)
        return result;
    *pool = find(POOL_OF_STREAMS, handle, 0);
    if (*pool == NULL)
        *pool = find_or_add(POOL_OF_STREAMS, handle, 0, devices_find(ordinal), false);
    *pool = charged(*pool);
    return result;
}

struct pool *pool_of_graphs(CUdevice device)
{
    if (region_open() == REGION_NONE)
        return NULL;
    struct pool *pool = find(POOL_OF_GRAPHS, NULL, device);
    return pool != NULL ? pool
                        : find_or_add(POOL_OF_GRAPHS, NULL, device, devices_find(device), false);
}

/* ---- allocations ---- */

/* Reserves what the pool lacks for `bytes` more. */
static bool reserve_more(struct pool *pool, uint64_t bytes, struct charge *charge)
{
    uint64_t used = used_bytes(pool);
    uint64_t spare = pool->charged_bytes > used ? pool->charged_bytes - used : 0;
    uint64_t wanted = charge_rounded(bytes);
    uint64_t lacking = wanted > spare ? wanted - spare : 0;
    *charge = (struct charge){.device = pool->device, .kind = VGPU_KIND_ASYNC};
    pool->pending_bytes = 0;
    if (lacking == 0)
        return pool->device >= 0;
    uint64_t steps = rounded(lacking, pool->granule_bytes);
    bool reserved = charge_try(charge, pool->device, VGPU_KIND_ASYNC, steps) ||
                    (steps > lacking && charge_try(charge, pool->device, VGPU_KIND_ASYNC, lacking));
    if (reserved) {
        pool->charged_bytes += charge->bytes;
        pool->pending_bytes = charge->bytes;
    }
    return reserved;
}

CUresult pool_begin(struct pool *pool, uint64_t bytes)
{
    struct charge charge;
    lock_pool(pool);
    bool reserved = reserve_more(pool, bytes, &charge);
    if (!reserved && pool->device >= 0) {
        unlock_pool(pool); /* it is looked through as well */
        charge_reclaim(pool->device);
        lock_pool(pool);
        reserved = reserve_more(pool, bytes, &charge);
    }
    if (reserved)
        return CUDA_SUCCESS;
    unlock_pool(pool);
    charge.bytes = bytes;
    return charge_refuse(&charge);
}

bool pool_end(struct pool *pool, uint64_t bytes, const CUdeviceptr *address)
{
    uint64_t reserved;
    bool fits = true;
    if (!ask_reserved(pool, &reserved)) { /* the charge stays as it is, or as it was */
        bool is_undone = pool->form == POOL_OF_STREAMS && address == NULL;
        reserved = pool->charged_bytes - (is_undone ? pool->pending_bytes : 0);
    }
    if (reserved > pool->charged_bytes) {
        /* It took more than the bytes: larger steps than those seen so far. */
        uint64_t more_bytes = reserved - pool->charged_bytes;
        uint64_t granule = reserved & -reserved;
        struct charge more;
        fits = charge_try(&more, pool->device, VGPU_KIND_ASYNC, more_bytes);
        if (fits)
            pool->charged_bytes = reserved;
        if (granule > pool->granule_bytes)
            pool->granule_bytes = granule < MOST_GRANULE_BYTES ? granule : MOST_GRANULE_BYTES;
    } else {
        shrink_charge(pool, reserved);
    }
    struct charge charge = {.device = pool->device, .kind = VGPU_KIND_ASYNC, .bytes = bytes};
    if (fits && address != NULL)
        pool->used_bytes += charge_rounded(bytes);
    unlock_pool(pool);
    if (fits && address != NULL) /* unlocked: what stood there before may be of this pool, too */
        charge_keep_lasting(&charge, SPACE_ADDRESS, *address, &pool->owner);
    return fits;
}

uint64_t pool_kept_bytes(const struct pool *pool)
{
    return __atomic_load_n(&pool->charged_bytes, __ATOMIC_RELAXED) + pool->elsewhere_bytes;
}

void pool_refresh(struct pool *pool)
{
    lock_pool(pool);
    if (pool->form == POOL_OF_STREAMS || pool->form == POOL_OF_GRAPHS)
        follow_driver(pool);
    unlock_pool(pool);
}

void pool_after_wait(void)
{
    if (__builtin_expect(!__atomic_load_n(&is_slack, __ATOMIC_ACQUIRE), 1))
        return;
    __atomic_store_n(&is_slack, 0, __ATOMIC_RELEASE);
    for (struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE); pool != NULL;
         pool = pool->next)
        if (__atomic_load_n(&pool->form, __ATOMIC_ACQUIRE) == POOL_OF_STREAMS &&
            pool->charged_bytes > pool->used_bytes)
            pool_refresh(pool);
}

/* ---- the end of a pool ---- */

struct pool *pool_destroying(CUmemoryPool handle)
{
    struct pool *pool = find(POOL_OF_STREAMS, handle, 0);
    if (pool == NULL)
        return NULL;
    lock_pool(pool);
    if (!pool->is_host && pool->device >= 0) {
        trim(pool);
        follow_driver(pool);
    }
    /* before the driver is called: another pool may get the same handle right after */
    __atomic_store_n(&pool->form, POOL_DESTROYED, __ATOMIC_RELEASE);
    return pool;
}

void pool_destroyed(struct pool *pool, bool done)
{
    if (pool == NULL)
        return;
    if (done)
        settle_destroyed(pool);
    else
        __atomic_store_n(&pool->form, POOL_OF_STREAMS, __ATOMIC_RELEASE);
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
    unlock_pool(pool);
}
