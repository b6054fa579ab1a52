/* Plain, pitched, managed and stream-ordered memory, and pools. */
#include "shim_fuzz.h"

#define MOST_BYTES ((size_t)3 << 20)

static CUdeviceptr addresses[24];
static CUmemoryPool pools[6];

static void put(int result, const CUdeviceptr *address)
{
    fuzz_untouched(result, *address);
    if (result == CUDA_SUCCESS)
        *ANY(addresses) = *address; /* what stood there lives on until the end */
}

CUdeviceptr memory_any(void)
{
    CUdeviceptr address = *ANY(addresses);
    return one_in(12) ? address + 1 + roll(500) : one_in(20) ? UNTOUCHED : address;
}

static void take_pitched(void)
{
    CUdeviceptr address = UNTOUCHED;
    size_t pitch = UNTOUCHED;
    static const unsigned int elements[] = {4, 8, 16, 16, 0, 3};
    size_t width = one_in(8) ? fuzz_bytes(3000) : 1 + roll(3000);
    size_t height = one_in(8) ? fuzz_bytes(300) : 1 + roll(300);
    int result = SAY(
        cuMemAllocPitch_v2(one_in(40) ? NULL : &address, &pitch, width, height, *ANY(elements)));
    fuzz_untouched(result, pitch);
    fuzz_said("pitch", result == CUDA_SUCCESS ? (int)pitch : 0);
    put(result, &address);
}

static void take_narrow(void)
{
    CUdeviceptr_v1 address = (CUdeviceptr_v1)UNTOUCHED;
    unsigned int pitch;
    int result =
        one_in(2)
            ? SAY(cuMemAlloc(&address, (unsigned int)fuzz_bytes(MOST_BYTES)))
            : SAY(cuMemAllocPitch(&address, &pitch, (unsigned int)roll(3000), 1 + roll(9), 4));
    if (result == CUDA_SUCCESS)
        put(result, &(CUdeviceptr){address});
}

static void take(void)
{
    CUdeviceptr address = UNTOUCHED;
    switch (roll(4)) {
    case 0:
        put(SAY(cuMemAllocManaged(&address, fuzz_bytes(MOST_BYTES),
                                  one_in(6) ? (unsigned int)roll(5) : CU_MEM_ATTACH_GLOBAL)),
            &address);
        return;
    case 1:
        take_pitched();
        return;
    case 2:
        if (one_in(3)) {
            take_narrow();
            return;
        }
        /* fallthrough */
    default:
        put(SAY(cuMemAlloc_v2(one_in(40) ? NULL : &address, fuzz_bytes(MOST_BYTES))), &address);
    }
}

static int free_any_way(CUdeviceptr address)
{
    switch (roll(8)) {
    case 0:
        return SAY(cuMemFree((CUdeviceptr_v1)address));
    case 1:
        return SAY(cuMemFreeAsync(address, fuzz_stream()));
    case 2:
        return SAY(cuMemFreeAsync_ptsz(address, fuzz_stream()));
    default:
        return SAY(cuMemFree_v2(address));
    }
}

static void give(void)
{
    CUdeviceptr address = memory_any();
    if (free_any_way(address) != CUDA_SUCCESS)
        return;
    if (one_in(3)) { /* again, before the driver can have given the address out again */
        for (int i = 0; i < STREAMS; i++)
            SAY(cuStreamSynchronize(fuzz.streams[i]));
        free_any_way(address);
    }
    for (size_t i = 0; i < COUNT(addresses); i++)
        if (addresses[i] == address)
            addresses[i] = 0;
}

/* A context has ended: which addresses were its own is not known here. */
void memory_forget(void)
{
    memset(addresses, 0, sizeof addresses);
}

void memory_step(void)
{
    if (one_in(2))
        take();
    else
        give();
}

/* ---- pools ---- */

CUmemoryPool pool_any(void)
{
    return *ANY(pools);
}

static void make_pool(void)
{
    CUmemPoolProps wanted = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)roll(GPUS)}};
    CUmemoryPool made;
    if (one_in(3))
        wanted.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (one_in(8))
        wanted.location.id = 7;
    if (one_in(8))
        wanted.location.type = CU_MEM_LOCATION_TYPE_HOST;
    if (SAY(cuMemPoolCreate(&made, &wanted)) == CUDA_SUCCESS)
        *ANY(pools) = made;
}

static void find_pool(void)
{
    CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)roll(GPUS)};
    CUmemoryPool found;
    int result;
    if (one_in(6))
        where.type = CU_MEM_LOCATION_TYPE_HOST;
    switch (roll(4)) {
    case 0:
        result = SAY(cuDeviceGetDefaultMemPool(&found, where.id));
        break;
    case 1:
        result = SAY(cuDeviceGetMemPool(&found, where.id));
        break;
    case 2:
        result = SAY(cuMemGetDefaultMemPool(&found, &where, CU_MEM_ALLOCATION_TYPE_PINNED));
        break;
    default:
        result = SAY(cuMemGetMemPool(&found, &where, CU_MEM_ALLOCATION_TYPE_PINNED));
    }
    if (result == CUDA_SUCCESS)
        *ANY(pools) = found;
}

/* Twice at times; later another pool may have the number. */
static void end_pool(CUmemoryPool pool)
{
    if (SAY(cuMemPoolDestroy(pool)) != CUDA_SUCCESS)
        return;
    if (one_in(2))
        SAY(cuMemPoolDestroy(pool));
    for (size_t i = 0; i < COUNT(pools); i++)
        if (pools[i] == pool)
            pools[i] = NULL;
}

static void change_pool(CUmemoryPool pool)
{
    CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)roll(GPUS)};
    cuuint64_t value = one_in(4) ? UINT64_MAX : roll(3) * MOST_BYTES;
    int reuse = (int)roll(2);
    switch (roll(6)) {
    case 0:
        SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
        return;
    case 1:
        SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
        return;
    case 2:
        SAY(cuDeviceSetMemPool((CUdevice)roll(GPUS), pool));
        return;
    case 3:
        SAY(cuMemSetMemPool(&where, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
        return;
    default:
        SAY(cuMemPoolTrimTo(pool, value));
    }
}

static void take_from_pool(void)
{
    CUdeviceptr address = UNTOUCHED;
    CUdeviceptr *result = one_in(40) ? NULL : &address;
    size_t bytes = fuzz_bytes(MOST_BYTES);
    switch (roll(4)) {
    case 0:
        put(SAY(cuMemAllocAsync(result, bytes, fuzz_stream())), &address);
        return;
    case 1:
        put(SAY(cuMemAllocAsync_ptsz(result, bytes, fuzz_stream())), &address);
        return;
    case 2:
        put(SAY(cuMemAllocFromPoolAsync_ptsz(result, bytes, pool_any(), fuzz_stream())), &address);
        return;
    default:
        put(SAY(cuMemAllocFromPoolAsync(result, bytes, pool_any(), fuzz_stream())), &address);
    }
}

void pool_step(void)
{
    switch (roll(12)) {
    case 0:
        make_pool();
        return;
    case 1:
        find_pool();
        return;
    case 2:
        change_pool(pool_any());
        return;
    case 3:
        if (one_in(2))
            end_pool(pool_any());
        return;
    case 4:
        SAY(cuStreamSynchronize(fuzz_stream()));
        return;
    case 5 ... 7:
        give();
        return;
    default:
        take_from_pool();
    }
}

void pool_rest(void)
{
    CUmemoryPool pool;
    for (size_t i = 0; i < COUNT(pools); i++)
        SAY(cuMemPoolTrimTo(pools[i], 0));
    for (int i = 0; i < GPUS; i++)
        if (SAY(cuDeviceGetDefaultMemPool(&pool, i)) == CUDA_SUCCESS)
            SAY(cuMemPoolTrimTo(pool, 0));
}
