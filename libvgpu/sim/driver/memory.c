/*
 * Device memory of a process: lazily backed anonymous mappings, whose addresses are the device
 * pointers, so that bytes really move. What is charged to the device is what was asked, rounded up
 * to DRIVER_ALLOCATION_ROUND: a real driver takes 2 MiB blocks and shares them among small
 * allocations, which shows neither in cuMemGetInfo of a program that allocates whole MiB nor in a
 * sum of what was asked. Managed memory is charged whole, as if all of it were on the device.
 * Unlike on many real drivers cuMemFree does not wait for the device.
 */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"
#include "ipc.h"
#include "managed.h"

#define PITCH_ALIGNMENT 512

pthread_mutex_t memory_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t memory_bytes_lock = PTHREAD_RWLOCK_INITIALIZER;
static void *allocation_tree; /* of struct allocation, by range */
static struct allocation *allocation_list;
static unsigned long long next_allocation_id;

uint64_t memory_round(uint64_t bytes)
{
    return (bytes + DRIVER_ALLOCATION_ROUND - 1) / DRIVER_ALLOCATION_ROUND *
           DRIVER_ALLOCATION_ROUND;
}

/* A few mappings of freed allocations are kept for the next of the same size, since the kernel
 * takes longer over one than everything else here; like on a device their old content is still
 * there. Large ones are kept only if nothing was ever written to them, so that they hold no memory
 * of the host. The oldest makes room. */
#define KEPT_COUNT 16
#define KEPT_BYTES (4u << 20)

static struct kept {
    void *address;
    uint64_t bytes;
} kept[KEPT_COUNT];
static unsigned int oldest_kept;

void *memory_map(uint64_t bytes)
{
    pthread_mutex_lock(&memory_mutex);
    for (int i = 0; i < KEPT_COUNT; i++)
        if (kept[i].address && kept[i].bytes == bytes) {
            void *again = kept[i].address;
            kept[i].address = NULL;
            pthread_mutex_unlock(&memory_mutex);
            return again;
        }
    pthread_mutex_unlock(&memory_mutex);
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

void memory_unmap(void *address, uint64_t bytes, bool untouched)
{
    struct kept leaving = {address, bytes};
    if (untouched || bytes <= KEPT_BYTES) {
        pthread_mutex_lock(&memory_mutex);
        unsigned int place = 0;
        while (place < KEPT_COUNT && kept[place].address)
            place++;
        if (place == KEPT_COUNT)
            place = oldest_kept++ % KEPT_COUNT;
        leaving = kept[place];
        kept[place] = (struct kept){address, bytes};
        pthread_mutex_unlock(&memory_mutex);
    }
    if (leaving.address)
        munmap(leaving.address, leaving.bytes);
}

/* Ranges that touch are equal, so that a search for a few bytes finds the whole. */
static int compare_ranges(const void *left, const void *right)
{
    const struct allocation *one = left, *other = right;
    if (one->address + one->bytes <= other->address)
        return -1;
    return one->address >= other->address + other->bytes ? 1 : 0;
}

static struct allocation *insert(struct allocation *allocation)
{
    pthread_mutex_lock(&memory_mutex);
    allocation->id = ++next_allocation_id;
    allocation->next = allocation_list;
    struct allocation **node = tsearch(allocation, &allocation_tree, compare_ranges);
    if (!node || *node != allocation) {
        free(allocation);
        allocation = NULL;
    } else {
        if (allocation_list)
            allocation_list->previous = allocation;
        allocation_list = allocation;
    }
    pthread_mutex_unlock(&memory_mutex);
    return allocation;
}

struct allocation *memory_insert(uint64_t address, uint64_t bytes, uint64_t charged_bytes,
                                 enum allocation_kind kind, struct CUctx_st *context,
                                 struct CUmemPoolHandle_st *pool)
{
    struct allocation *allocation = malloc(sizeof *allocation);
    if (!allocation)
        return NULL;
    *allocation = (struct allocation){.address = address,
                                      .bytes = bytes,
                                      .charged_bytes = charged_bytes,
                                      .kind = kind,
                                      .context = context,
                                      .pool = pool};
    return insert(allocation);
}

bool memory_insert_mapped(uint64_t address, uint64_t bytes, struct CUctx_st *context,
                          struct backing *of_piece)
{
    struct allocation *allocation = malloc(sizeof *allocation);
    if (!allocation)
        return false;
    *allocation = (struct allocation){.address = address,
                                      .bytes = bytes,
                                      .kind = ALLOCATION_MAPPED,
                                      .context = context,
                                      .of_piece = of_piece};
    return insert(allocation) != NULL;
}

bool allocation_on_host(const struct allocation *allocation)
{
    return allocation->kind == ALLOCATION_HOST || allocation->kind == ALLOCATION_REGISTERED ||
           (allocation->kind == ALLOCATION_MAPPED && !allocation->of_piece) ||
           (allocation->kind == ALLOCATION_POOL && pool_on_host(allocation->pool));
}

struct driver_device *allocation_device(const struct allocation *allocation)
{
    return allocation_on_host(allocation) ? NULL
           : allocation->pool             ? allocation->pool->device
           : allocation->of_piece         ? allocation->of_piece->device
           : allocation->shared           ? allocation->shared->device
                                          : allocation->context->device;
}

static struct allocation *find_byte_locked(uint64_t address)
{
    struct allocation key = {.address = address, .bytes = 1};
    struct allocation **node = tfind(&key, &allocation_tree, compare_ranges);
    return node ? *node : NULL;
}

/* A range may run over mappings that lie side by side: to a program they are one reservation. */
struct allocation *memory_find_locked(uint64_t address, uint64_t bytes)
{
    struct allocation *first = find_byte_locked(address), *last = first;
    while (last && address + bytes > last->address + last->bytes) {
        if (last->kind != ALLOCATION_MAPPED)
            return NULL;
        last = find_byte_locked(last->address + last->bytes);
    }
    return last && (last == first || last->kind == ALLOCATION_MAPPED) ? first : NULL;
}

struct allocation *memory_find_opened_locked(const struct CUctx_st *context,
                                             const struct driver_device *device, uint64_t share)
{
    struct allocation *allocation = allocation_list;
    while (allocation && (allocation->kind != ALLOCATION_OPENED || allocation->context != context ||
                          !allocation->shared || allocation->shared->device != device ||
                          allocation->shared->identifier != share))
        allocation = allocation->next;
    return allocation;
}

bool memory_find(uint64_t address, uint64_t bytes, struct allocation *found)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation =
        address + bytes < address ? NULL : memory_find_locked(address, bytes);
    if (allocation && found)
        *found = *allocation;
    pthread_mutex_unlock(&memory_mutex);
    return allocation != NULL;
}

/* Takes the allocation that begins at `address` out of the map; the caller frees it. */
struct allocation *memory_remove_locked(uint64_t address)
{
    struct allocation *allocation = find_byte_locked(address);
    if (!allocation || allocation->address != address)
        return NULL;
    tdelete(allocation, &allocation_tree, compare_ranges);
    if (allocation->previous)
        allocation->previous->next = allocation->next;
    else
        allocation_list = allocation->next;
    if (allocation->next)
        allocation->next->previous = allocation->previous;
    return allocation;
}

int memory_attach(struct driver_device *device)
{
    struct sim_client_options options = {.percentage = device->percentage};
    if (__atomic_load_n(&device->device->attached, __ATOMIC_ACQUIRE))
        return 0;
    return sim_client_attach(device->device, &options);
}

int memory_charge(struct driver_device *device, uint64_t bytes)
{
    int attached = memory_attach(device); /* handles and pools do without a context */
    if (attached != 0)
        return attached;
    if (sim_machine_faulty(driver.machine) && fault_fails_allocation(device))
        return -ENOMEM;
    int error = sim_client_reserve(device->device, bytes, device->cap_bytes);
    if (error == -ENOMEM) {
        pool_trim_device(device, false);
        error = sim_client_reserve(device->device, bytes, device->cap_bytes);
    }
    return error;
}

static bool on_device(enum allocation_kind kind)
{
    return kind == ALLOCATION_DEVICE || kind == ALLOCATION_MANAGED || kind == ALLOCATION_ARRAY ||
           kind == ALLOCATION_OWN || kind == ALLOCATION_OWN_MANAGED;
}

CUresult memory_allocate(struct CUctx_st *context, uint64_t bytes, enum allocation_kind kind,
                         CUdeviceptr *address)
{
    uint64_t charged_bytes = on_device(kind) ? memory_round(bytes) : 0;
    if (charged_bytes < bytes && on_device(kind)) /* wrapped round */
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (charged_bytes && memory_charge(context->device, charged_bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *mapped = memory_map(bytes);
    if (!mapped || !memory_insert((uint64_t)mapped, bytes, charged_bytes, kind, context, NULL)) {
        if (mapped)
            memory_unmap(mapped, bytes, true);
        if (charged_bytes)
            sim_client_release(context->device->device, charged_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (CUdeviceptr)mapped;
    return CUDA_SUCCESS;
}

static void give_back(struct allocation *allocation)
{
    /* the host itself may have written to managed and to host memory */
    bool untouched = allocation->backing.bytes == 0 &&
                     (allocation->kind == ALLOCATION_DEVICE || allocation->kind == ALLOCATION_POOL);
    backing_give_up(&allocation->backing);
    managed_forget(allocation->advice);
    if (allocation->shared)
        ipc_give_back(allocation);
    else if (allocation->kind != ALLOCATION_REGISTERED && allocation->kind != ALLOCATION_MAPPED)
        memory_unmap((void *)allocation->address, allocation->bytes, untouched);
    if (allocation->pool) {
        pthread_mutex_lock(&memory_mutex);
        pool_give_back_locked(allocation->pool, allocation->charged_bytes, allocation->shared);
        pthread_mutex_unlock(&memory_mutex);
    } else if (allocation->charged_bytes && !allocation->shared) {
        sim_client_release(allocation->context->device->device, allocation->charged_bytes);
    }
    free(allocation->shared);
    free(allocation);
}

void memory_forget(uint64_t address)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_remove_locked(address);
    pthread_mutex_unlock(&memory_mutex);
    if (allocation)
        give_back(allocation);
}

/* What is another process's, or a mapping, or the driver's has calls of its own for its end. */
bool memory_is_freeable(const struct allocation *allocation, bool host)
{
    enum allocation_kind kind = allocation->kind;
    return host ? kind == ALLOCATION_HOST
                : kind == ALLOCATION_DEVICE || kind == ALLOCATION_MANAGED ||
                      kind == ALLOCATION_POOL || kind == ALLOCATION_POOL_OPENED;
}

CUresult memory_free_now(uint64_t address, bool host)
{
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = find_byte_locked(address);
    if (allocation && graph_memory_owns(allocation)) { /* its address outlives its memory */
        bool begins = allocation->address == address;
        pthread_mutex_unlock(&memory_mutex);
        return begins && !host ? graph_memory_free(address) : CUDA_ERROR_INVALID_VALUE;
    }
    if (allocation && memory_is_freeable(allocation, host))
        allocation = memory_remove_locked(address);
    else
        allocation = NULL;
    pthread_mutex_unlock(&memory_mutex);
    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    give_back(allocation);
    return CUDA_SUCCESS;
}

CUresult memory_free(uint64_t address, bool host)
{
    CUresult result = stream_calls_settle();
    return result == CUDA_SUCCESS ? memory_free_now(address, host) : result;
}

/* A context takes its memory along; memory of pools and handles belongs to the device and stays. */
void memory_free_context(struct CUctx_st *context)
{
    for (;;) {
        pthread_mutex_lock(&memory_mutex);
        struct allocation *allocation = allocation_list;
        while (allocation && (allocation->context != context || allocation->pool ||
                              allocation->kind == ALLOCATION_MAPPED))
            allocation = allocation->next;
        if (allocation)
            allocation = memory_remove_locked(allocation->address);
        pthread_mutex_unlock(&memory_mutex);
        if (!allocation)
            return;
        give_back(allocation);
    }
}

/* ---- entry points ---------------------------------------------------------------------------- */

static CUresult allocate(CUdeviceptr *address, uint64_t bytes, enum allocation_kind kind)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!address || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_check_unsafe();
    return result == CUDA_SUCCESS ? memory_allocate(context, bytes, kind, address) : result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    return allocate(address, bytes, ALLOCATION_DEVICE);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width_bytes, size_t height,
                            unsigned int element_bytes)
{
    if (!pitch || width_bytes == 0 || height == 0 ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row_bytes = (width_bytes + PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    if (row_bytes < width_bytes || height > SIZE_MAX / row_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate(address, (uint64_t)row_bytes * height, ALLOCATION_DEVICE);
    if (result == CUDA_SUCCESS)
        *pitch = row_bytes;
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(address, bytes, ALLOCATION_MANAGED);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUresult result = memory_check_free(address);
    if (result != CUDA_SUCCESS || !address)
        return result;
    result = capture_check_unsafe();
    return result == CUDA_SUCCESS ? memory_free(address, false) : result;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!free_bytes || !total_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t used_bytes, own_bytes;
    if (sim_client_memory(context->device->device, &used_bytes, &own_bytes) != 0)
        return CUDA_ERROR_UNKNOWN;
    *total_bytes = context->device->identity->profile.memory_bytes;
    *free_bytes = *total_bytes - used_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct allocation found;
    DRIVER_CHECK();
    if (!memory_find(address, 1, &found))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = found.address;
    if (bytes)
        *bytes = found.bytes;
    return CUDA_SUCCESS;
}
