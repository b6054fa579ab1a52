/* Hooks of stream-ordered memory and of pools. The twins of the per-thread default stream share
 * their original's body. What is put on a captured stream becomes a node of a graph, which takes
 * memory when it is launched (hook_graph_memory.c). */
#include "capture.h"
#include "charge.h"
#include "hook.h"
#include "late_free.h"
#include "pool.h"

/* Allocates by `call`, and by `undo` gives back what turned out not to fit. */
#define ALLOCATE(stream, find, bytes, call, undo) \
    do { \
        struct pool *pool_ = NULL; \
        bool is_recorded_; \
        CUresult result_ = capture_ask(stream, &is_recorded_); \
        if (result_ == CUDA_SUCCESS && !is_recorded_) \
            result_ = (find); \
        if (result_ != CUDA_SUCCESS) \
            return result_; \
        if (pool_ == NULL) \
            return call; \
        result_ = pool_begin(pool_, bytes); \
        if (result_ != CUDA_SUCCESS) \
            return result_; \
        result_ = (call); \
        if (!pool_end(pool_, bytes, result_ == CUDA_SUCCESS ? address : NULL)) { \
            if (result_ == CUDA_SUCCESS) \
                undo; \
            pool_refresh(pool_); \
            result_ = CUDA_ERROR_OUT_OF_MEMORY; \
        } \
        return result_; \
    } while (0)

/* `same` is what a stream of 0 stands for in this form of the call. */
#define ALLOCATION_HOOKS(alloc, from_pool, free, same) \
    VGPU_EXPORT CUresult alloc(CUdeviceptr *address, size_t bytes, CUstream stream) \
    { \
        NEED(alloc); \
        CUstream true_stream = stream != NULL ? stream : same; \
        ALLOCATE(true_stream, pool_of_stream(&pool_, true_stream), bytes, \
                 real.alloc(address, bytes, stream), real.free(*address, stream)); \
    } \
    VGPU_EXPORT CUresult from_pool(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, \
                                   CUstream stream) \
    { \
        NEED(from_pool); \
        CUstream true_stream = stream != NULL ? stream : same; \
        ALLOCATE(true_stream, pool_to_take(&pool_, pool, true_stream), bytes, \
                 real.from_pool(address, bytes, pool, stream), real.free(*address, stream)); \
    } \
    VGPU_EXPORT CUresult free(CUdeviceptr address, CUstream stream) \
    { \
        NEED(free); \
        if (capture_is_active(stream != NULL ? stream : same)) \
            return real.free(address, stream); \
        struct allocation taken; \
        bool known = allocation_map_take(SPACE_ADDRESS, address, &taken); \
        CUresult result = real.free(address, stream); \
        if (known && result == CUDA_SUCCESS && pool_owning(taken.owner) == NULL) \
            late_free_put(&taken, stream != NULL ? stream : same); \
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
    NEED(cuMemPoolCreate);
    CUresult result = real.cuMemPoolCreate(pool, properties);
    if (result == CUDA_SUCCESS)
        pool_made(*pool, properties->location, properties->allocType);
    return result;
}

VGPU_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    NEED(cuMemPoolDestroy);
    struct pool *pool = pool_destroying(handle);
    CUresult result = real.cuMemPoolDestroy(handle);
    pool_destroyed(pool, result == CUDA_SUCCESS);
    return result;
}

VGPU_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes_to_keep)
{
    NEED(cuMemPoolTrimTo);
    CUresult result = real.cuMemPoolTrimTo(handle, bytes_to_keep);
    struct pool *pool = result == CUDA_SUCCESS ? pool_of(handle, NULL) : NULL;
    if (pool != NULL)
        pool_refresh(pool);
    return result;
}

/* Pools of places other than a GPU are handed out by these two alone. */
#define HAND_OUT(symbol) \
    VGPU_EXPORT CUresult symbol(CUmemoryPool *pool, CUmemLocation *location, \
                                CUmemAllocationType type) \
    { \
        NEED(symbol); \
        CUresult result = real.symbol(pool, location, type); \
        if (result == CUDA_SUCCESS) \
            pool_placed(*pool, *location, type); \
        return result; \
    }

HAND_OUT(cuMemGetDefaultMemPool)
HAND_OUT(cuMemGetMemPool)
