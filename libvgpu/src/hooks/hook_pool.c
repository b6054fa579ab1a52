/* Hooks of stream-ordered memory and of pools. The twins of the per-thread default stream share
 * their original's body. What is put on a captured stream becomes a node of a graph, which takes
 * memory when it is launched (hook_graph_memory.c). */
#include "driver/capture.h"
#include "hooks/hook.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/charge.h"
#include "memory/ledger/deferred_free.h"
#include "memory/pools/pool.h"

/* Allocates from a pool that is locked, and unlocks it. What turns out not to fit is freed again by
 * `give_back`. */
static CUresult allocate(struct pool *pool, CUdeviceptr *address, size_t bytes, CUmemoryPool handle,
                         CUstream stream, __typeof__(real.cuMemAllocFromPoolAsync) take,
                         __typeof__(real.cuMemFreeAsync) give_back)
{
    for (bool is_sure = false;; is_sure = true) {
        CUresult result = pool_begin(pool, bytes, is_sure);
        if (result != CUDA_SUCCESS)
            return result;
        result = take(address, bytes, handle, stream);
        if (pool_end(pool, bytes, result == CUDA_SUCCESS ? address : NULL))
            return result;
        give_back(*address, stream);
        pool_undo(pool, bytes);
        if (is_sure)
            return pool_refuse(pool);
    }
}

/* `same` is what a stream of 0 stands for in this form of the call. */
#define ALLOCATION_HOOKS(alloc, from_pool, free, same) \
    VGPU_EXPORT CUresult alloc(CUdeviceptr *address, size_t bytes, CUstream stream) \
    { \
        NEEDS(alloc); \
        ALONE_WITHOUT(address, alloc(address, bytes, stream)); \
        CUstream true_stream = stream != NULL ? stream : same; \
        struct pool *pool = NULL; \
        CUmemoryPool handle; \
        bool is_recorded; \
        reconcile_quiet(); \
        CUresult result = capture_ask(true_stream, &is_recorded); \
        if (result == CUDA_SUCCESS && !is_recorded && real.from_pool != NULL) \
            result = pool_lock_of_stream(&pool, true_stream, &handle); \
        if (result != CUDA_SUCCESS) \
            return result; \
        if (pool == NULL) \
            return real.alloc(address, bytes, stream); \
        /* by name: another thread may give the GPU another pool at any moment */ \
        return allocate(pool, address, bytes, handle, stream, real.from_pool, real.free); \
    } \
    VGPU_EXPORT CUresult from_pool(CUdeviceptr *address, size_t bytes, CUmemoryPool handle, \
                                   CUstream stream) \
    { \
        NEEDS(from_pool); \
        ALONE_WITHOUT(address, from_pool(address, bytes, handle, stream)); \
        CUstream true_stream = stream != NULL ? stream : same; \
        struct pool *pool = NULL; \
        bool is_recorded; \
        reconcile_quiet(); \
        CUresult result = capture_ask(true_stream, &is_recorded); \
        if (result == CUDA_SUCCESS && !is_recorded) \
            result = pool_lock(&pool, handle, true_stream); \
        if (result != CUDA_SUCCESS) \
            return result; \
        if (pool == NULL) \
            return real.from_pool(address, bytes, handle, stream); \
        return allocate(pool, address, bytes, handle, stream, real.from_pool, real.free); \
    } \
    VGPU_EXPORT CUresult free(CUdeviceptr address, CUstream stream) \
    { \
        NEEDS(free); \
        if (capture_is_active(stream != NULL ? stream : same)) \
            return real.free(address, stream); \
        struct allocation taken; \
        bool known = allocation_map_take(SPACE_ADDRESS, address, &taken); \
        CUresult result = real.free(address, stream); \
        if (known && result == CUDA_SUCCESS && !pool_follows(taken.owner)) \
            deferred_free_put(&taken, stream != NULL ? stream : same); \
        else if (known) \
            charge_taken(&taken, result == CUDA_SUCCESS); \
        return result; \
    }

ALLOCATION_HOOKS(cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync, NULL)
ALLOCATION_HOOKS(cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync_ptsz, cuMemFreeAsync_ptsz,
                 CU_STREAM_PER_THREAD)

/* ---- pools ---- */

VGPU_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    NEEDS(cuMemPoolCreate);
    ALONE_WITHOUT(pool, cuMemPoolCreate(pool, properties));
    ALONE_WITHOUT(properties, cuMemPoolCreate(pool, properties));
    CUresult result = real.cuMemPoolCreate(pool, properties);
    if (result == CUDA_SUCCESS)
        pool_placed(*pool, properties->location, properties->allocType, true);
    return result;
}

VGPU_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    NEEDS(cuMemPoolDestroy);
    struct pool *pool = pool_destroying(handle);
    CUresult result = real.cuMemPoolDestroy(handle);
    pool_destroyed(pool, result == CUDA_SUCCESS);
    return result;
}

VGPU_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes_to_keep)
{
    NEEDS(cuMemPoolTrimTo);
    CUresult result = real.cuMemPoolTrimTo(handle, bytes_to_keep);
    struct pool *pool = NULL;
    if (result == CUDA_SUCCESS)
        pool_lock(&pool, handle, NULL);
    if (pool != NULL)
        pool_refresh(pool);
    return result;
}

/* Pools of places other than a GPU are handed out by these two alone. */
#define HAND_OUT(symbol) \
    VGPU_EXPORT CUresult symbol(CUmemoryPool *pool, CUmemLocation *location, \
                                CUmemAllocationType type) \
    { \
        NEEDS(symbol); \
        ALONE_WITHOUT(pool, symbol(pool, location, type)); \
        ALONE_WITHOUT(location, symbol(pool, location, type)); \
        CUresult result = real.symbol(pool, location, type); \
        if (result == CUDA_SUCCESS) \
            pool_placed(*pool, *location, type, false); \
        return result; \
    }

HAND_OUT(cuMemGetDefaultMemPool)
HAND_OUT(cuMemGetMemPool)
