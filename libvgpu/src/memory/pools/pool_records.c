/* Which record stands for a pool: see pool.h. Records are found without a lock and then locked; one
 * that came to stand for another pool meanwhile is looked for again. */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/real.h"
#include "memory/pools/pool_state.h"
#include "slice/devices.h"
#include "slice/region.h"

#define RECORDS_AT_ONCE 64 /* in one mapping */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* for writers */
static struct pool *records;
/* Where the kernel gave no memory for a record: takes nothing, so that nothing is free. */
static struct pool refusing = {.lock = PTHREAD_MUTEX_INITIALIZER, .device = DEVICE_NOT_OURS};

struct pool *pool_first_record(void)
{
    return __atomic_load_n(&records, __ATOMIC_ACQUIRE);
}

void pool_after_fork(void)
{
    lock_reset(&list_lock);
    lock_reset(&refusing.lock);
    pool_forget_slack();
    for (struct pool *pool = records; pool != NULL; pool = pool->next) {
        lock_reset(&pool->lock);
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
        lock_reset(&made[i].lock);
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

/* It may come to stand for another pool until it is. */
struct pool *pool_find_locked(enum pool_form form, CUmemoryPool handle, CUdevice ordinal)
{
    struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE);
    for (; pool != NULL; pool = pool->next) {
        if (!is_record_of(pool, form, handle, ordinal))
            continue;
        pool_lock_record(pool);
        if (is_record_of(pool, form, handle, ordinal))
            return pool;
        pool_unlock_record(pool);
    }
    return NULL;
}

/* False: there is no memory for a record. */
static bool add(enum pool_form form, CUmemoryPool handle, CUdevice ordinal, int device,
                bool is_host)
{
    charge_on_shortage(pool_reclaim);
    int cancelling = lock_take_whole(&list_lock, LOCK_POOLS);
    struct pool *pool = __atomic_load_n(&records, __ATOMIC_ACQUIRE);
    while (pool != NULL && !is_record_of(pool, form, handle, ordinal))
        pool = pool->next;
    if (pool == NULL && (pool = spare_record()) != NULL) {
        pool->owner.release = pool_release;
        pool->handle = handle;
        pool->ordinal = ordinal;
        pool->device = device;
        pool->is_host = is_host;
        pool->charged_bytes = pool->used_bytes = pool->elsewhere_bytes = pool->begun_bytes = 0;
        pool->refused_bytes = 0;
        pool->step_bytes = pool_likely_step(device);
        pool->serial++;
        pool->epoch++; /* never 0, and never what a pool of before said */
        __atomic_store_n(&pool->form, form, __ATOMIC_RELEASE);
    }
    lock_give_back_whole(&list_lock, cancelling);
    return pool != NULL;
}

static struct pool *add_locked(enum pool_form form, CUmemoryPool handle, CUdevice ordinal,
                               int device)
{
    struct pool *pool = NULL;
    while (pool == NULL && add(form, handle, ordinal, device, false))
        pool = pool_find_locked(form, handle, ordinal);
    if (pool == NULL)
        pool_lock_record(pool = &refusing);
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
    struct pool *stale = is_new ? pool_find_locked(POOL_OF_STREAMS, handle, 0) : NULL;
    if (stale != NULL) {
        pool_part_from_handle(stale);
        pool_unlock_record(stale);
    }
    add(POOL_OF_STREAMS, handle, 0, device >= 0 || on_device ? device : 0, is_host);
}

static struct pool *charged(struct pool *pool)
{
    if (!pool->is_host)
        return pool;
    pool_unlock_record(pool);
    return NULL;
}

/* One that was not made through us: some GPU's default pool, or one that nobody told us of. */
static CUresult add_unknown(struct pool **pool, CUmemoryPool handle, CUstream stream)
{
    int count = 0;
    int device;
    CUresult result = CUDA_SUCCESS;
    CUmemoryPool each = NULL;
    if (real.cuDeviceGetCount != NULL && real.cuDeviceGetDefaultMemPool != NULL)
        result = real.cuDeviceGetCount(&count);
    for (CUdevice ordinal = 0; ordinal < count && result == CUDA_SUCCESS; ordinal++) {
        result = real.cuDeviceGetDefaultMemPool(&each, ordinal);
        if (result == CUDA_SUCCESS && each == handle) {
            *pool = add_locked(POOL_OF_STREAMS, handle, 0, devices_find(ordinal));
            return CUDA_SUCCESS;
        }
    }
    if (result == CUDA_SUCCESS)
        result = devices_ask_stream(stream, &device);
    if (result == CUDA_SUCCESS && device != DEVICE_UNKNOWN)
        *pool = add_locked(POOL_OF_STREAMS, handle, 0, device);
    return result;
}

CUresult pool_lock(struct pool **pool, CUmemoryPool handle, CUstream stream)
{
    *pool = NULL;
    if (region_open() == REGION_NONE)
        return CUDA_SUCCESS;
    struct pool *found = pool_find_locked(POOL_OF_STREAMS, handle, 0);
    if (found == NULL)
        return add_unknown(pool, handle, stream);
    *pool = charged(found);
    return CUDA_SUCCESS;
}

CUresult pool_lock_of_stream(struct pool **pool, CUstream stream, CUmemoryPool *handle)
{
    CUdevice ordinal;
    bool is_known;
    CUmemoryPool now = NULL;
    *pool = NULL;
    if (region_open() == REGION_NONE || real.cuDeviceGetMemPool == NULL)
        return CUDA_SUCCESS;
    CUresult result = devices_ask_stream_ordinal(stream, &ordinal, &is_known);
    if (result == CUDA_SUCCESS && is_known)
        result = real.cuDeviceGetMemPool(handle, ordinal);
    if (result != CUDA_SUCCESS || !is_known)
        return result;
    for (;; *handle = now) {
        struct pool *found = pool_find_locked(POOL_OF_STREAMS, *handle, 0);
        if (found == NULL)
            found = add_locked(POOL_OF_STREAMS, *handle, 0, devices_find(ordinal));
        /* Locked it can neither end nor change; until then it can. */
        if (real.cuDeviceGetMemPool(&now, ordinal) != CUDA_SUCCESS || now == *handle) {
            *pool = charged(found);
            return CUDA_SUCCESS;
        }
        pool_unlock_record(found);
    }
}

struct pool *pool_lock_of_graphs(CUdevice device)
{
    if (region_open() == REGION_NONE)
        return NULL;
    struct pool *pool = pool_find_locked(POOL_OF_GRAPHS, NULL, device);
    if (pool == NULL) {
        pool = add_locked(POOL_OF_GRAPHS, NULL, device, devices_find(device));
        if (pool != &refusing && pool->charged_bytes == 0)
            pool->step_bytes = pool_ask_step(device);
    }
    return pool;
}
