/* Memory of every kind for the churning client. */
#include "sim_churn.h"

#define LARGEST_BYTES (8 << 20)
#define GRANULE (2u << 20)
#define LARGEST_GRANULES 4
#define TOUCHED_BYTES 4096
#define ROW_BYTES 64
#define ROWS 4

static const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

void memory_begin(struct churn *churn)
{
    CUmemPoolProps wanted = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device};
    MUST(cuMemPoolCreate(&churn->pool, &wanted));
}

void memory_end(struct churn *churn)
{
    MUST(cuMemPoolDestroy(churn->pool));
}

void memory_set_pool(struct churn *churn)
{
    cuuint64_t threshold_bytes = below(churn, 3) * (cuuint64_t)LARGEST_BYTES;
    if (below(churn, 2))
        MUST(cuMemPoolSetAttribute(churn->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                   &threshold_bytes));
    else
        MUST(cuMemPoolTrimTo(churn->pool, threshold_bytes));
}

static CUdeviceptr map(CUmemGenericAllocationHandle physical, size_t bytes)
{
    CUmemAccessDesc access = {.location = device, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    MUST(cuMemMap(address, bytes, 0, physical, 0));
    MUST(cuMemSetAccess(address, bytes, &access, 1));
    return address;
}

static void unmap(CUdeviceptr address, size_t bytes)
{
    MUST(cuMemUnmap(address, bytes));
    MUST(cuMemAddressFree(address, bytes));
}

static void take_mapped(struct churn *churn, struct piece *piece)
{
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device};
    piece->bytes = (1 + below(churn, LARGEST_GRANULES)) * (size_t)GRANULE;
    MUST(cuMemCreate(&piece->physical, piece->bytes, &wanted, 0));
    piece->address = map(piece->physical, piece->bytes);
    piece->second = map(piece->physical, piece->bytes);
    /* half of them live on by their mappings alone */
    if (below(churn, 2)) {
        MUST(cuMemRelease(piece->physical));
        piece->physical = 0;
    }
}

static void give_mapped(struct piece *piece)
{
    unmap(piece->address, piece->bytes);
    if (piece->physical)
        MUST(cuMemRelease(piece->physical));
    unmap(piece->second, piece->bytes);
}

static void take_array(struct churn *churn, struct piece *piece)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {.Width = ROW_BYTES + below(churn, 1000),
                                    .Height = ROWS + below(churn, 1000),
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                    .NumChannels = 1};
    if (piece->kind == ARRAY)
        MUST(cuArray3DCreate_v2(&piece->array, &form));
    else {
        MUST(cuMipmappedArrayCreate(&piece->mipmap, &form, 3));
        MUST(cuMipmappedArrayGetLevel(&piece->array, piece->mipmap, 0));
    }
}

static void take_exported(struct piece *piece)
{
    CUipcMemHandle handle;
    MUST(cuMemAlloc_v2(&piece->address, piece->bytes));
    int result = cuIpcGetMemHandle(&handle, piece->address);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) /* too many are exported on the machine */
        MUST(result);
}

void memory_take(struct churn *churn, struct piece *piece, CUstream stream)
{
    *piece = (struct piece){.stream = stream,
                            .kind = PLAIN + below(churn, KINDS - PLAIN),
                            .bytes = 1 + below(churn, LARGEST_BYTES)};
    switch (piece->kind) {
    case MANAGED:
        MUST(cuMemAllocManaged(&piece->address, piece->bytes, CU_MEM_ATTACH_GLOBAL));
        break;
    case ASYNC:
        MUST(cuMemAllocAsync(&piece->address, piece->bytes, stream));
        break;
    case FROM_POOL:
        MUST(cuMemAllocFromPoolAsync(&piece->address, piece->bytes, churn->pool, stream));
        break;
    case MAPPED:
        take_mapped(churn, piece);
        break;
    case ARRAY:
    case MIPMAP:
        take_array(churn, piece);
        break;
    case EXPORTED:
        take_exported(piece);
        break;
    default:
        MUST(cuMemAlloc_v2(&piece->address, piece->bytes));
    }
}

void memory_give(struct piece *piece)
{
    if (piece->kind == ASYNC || piece->kind == FROM_POOL)
        MUST(cuMemFreeAsync(piece->address, piece->stream));
    else if (piece->kind == MAPPED)
        give_mapped(piece);
    else if (piece->kind == ARRAY)
        MUST(cuArrayDestroy(piece->array));
    else if (piece->kind == MIPMAP)
        MUST(cuMipmappedArrayDestroy(piece->mipmap));
    else
        MUST(cuMemFree_v2(piece->address));
    piece->kind = NOTHING;
}

static void touch_array(const struct piece *piece)
{
    static unsigned char rows[ROWS][ROW_BYTES];
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = rows,
                          .srcPitch = ROW_BYTES,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = piece->array,
                          .WidthInBytes = ROW_BYTES,
                          .Height = ROWS};
    MUST(cuMemcpy2DAsync_v2(&copy, piece->stream));
}

void memory_touch(struct churn *churn, const struct piece *piece)
{
    CUstream stream = piece->stream;
    static unsigned char row[ROW_BYTES];
    size_t bytes = piece->bytes < TOUCHED_BYTES ? piece->bytes : TOUCHED_BYTES;
    CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = piece->address,
                         .srcPitch = ROW_BYTES,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = piece->address + bytes / 2,
                         .dstPitch = ROW_BYTES,
                         .WidthInBytes = ROW_BYTES,
                         .Height = ROWS};
    if (piece->array)
        touch_array(piece);
    else if (below(churn, 2) || bytes < 2 * ROWS * ROW_BYTES)
        MUST(cuMemsetD8Async(piece->address, (unsigned char)bytes, bytes, stream));
    else if (below(churn, 2))
        MUST(cuMemcpy2DAsync_v2(&box, stream));
    else if (piece->kind == MANAGED || below(churn, 8))
        MUST(cuMemcpyHtoDAsync_v2(piece->address, row, sizeof row, stream));
    else /* rarely: it takes a thread of the driver, as a host function does */
        MUST(cuStreamWriteValue32_v2(stream, piece->address, 7, 0));
}
