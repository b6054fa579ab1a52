/* Arrays of every form, and what is mapped into sparse ones. Handles that have ended are forgotten:
 * the driver need not know them again. */
#include "shim_fuzz.h"

#define MOST_EXTENT 700
#define TILE 128 /* elements of 32 bits, each way */
#define SPARSE_EXTENT 512
#define TILE_BYTES 65536

static CUarray arrays[10];
static CUmipmappedArray mipmaps[6];
static CUarray sparse[3];
static CUmemGenericAllocationHandle tiles[3]; /* tile pools */
static CUarray asked[GPUS];                   /* sparse ones that stay empty */
static bool is_taken[COUNT(sparse)][3][3];
static bool is_mixed; /* something was mapped that only the array's end ends in the ledger */

static size_t extent(void)
{
    return one_in(20) ? fuzz_bytes(MOST_EXTENT) : roll(4) == 0 ? 0 : 1 + roll(MOST_EXTENT);
}

static CUDA_ARRAY3D_DESCRIPTOR form(void)
{
    static const CUarray_format formats[] = {
        CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_FLOAT,
        CU_AD_FORMAT_HALF,          CU_AD_FORMAT_SIGNED_INT32,   (CUarray_format)0x77};
    static const unsigned int flags[] = {0,
                                         0,
                                         0,
                                         CUDA_ARRAY3D_LAYERED,
                                         CUDA_ARRAY3D_SURFACE_LDST,
                                         CUDA_ARRAY3D_CUBEMAP,
                                         CUDA_ARRAY3D_DEFERRED_MAPPING,
                                         CUDA_ARRAY3D_SPARSE,
                                         1u << 20};
    CUDA_ARRAY3D_DESCRIPTOR made = {.Width = 1 + extent(),
                                    .Height = extent(),
                                    .Depth = one_in(3) ? 1 + roll(12) : 0,
                                    .Format = *ANY(formats),
                                    .NumChannels =
                                        one_in(12) ? (unsigned int)roll(7) : 1u << roll(3),
                                    .Flags = *ANY(flags)};
    if (made.Flags & CUDA_ARRAY3D_CUBEMAP) {
        made.Height = made.Width;
        made.Depth = 6;
    }
    return made;
}

static void keep(int result, const CUarray *array)
{
    CUarray *place = ANY(arrays);
    fuzz_untouched(result, (uint64_t)(uintptr_t)*array);
    if (result != CUDA_SUCCESS)
        return;
    /* what cannot be ended lives on, and is charged on */
    if (*place != NULL)
        SAY(cuArrayDestroy(*place));
    *place = *array;
}

static void make_array(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = form();
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = wanted.Width,
                                  .Height = wanted.Height,
                                  .Format = wanted.Format,
                                  .NumChannels = wanted.NumChannels};
    CUDA_ARRAY_DESCRIPTOR_v1 flat_old = {.Width = (unsigned int)wanted.Width,
                                         .Height = (unsigned int)wanted.Height,
                                         .Format = wanted.Format,
                                         .NumChannels = wanted.NumChannels};
    CUDA_ARRAY3D_DESCRIPTOR_v1 deep_old = {.Width = (unsigned int)wanted.Width,
                                           .Height = (unsigned int)wanted.Height,
                                           .Depth = (unsigned int)wanted.Depth,
                                           .Format = wanted.Format,
                                           .NumChannels = wanted.NumChannels,
                                           .Flags = wanted.Flags};
    CUarray array = (CUarray)UNTOUCHED, *result = one_in(30) ? NULL : &array;
    switch (roll(5)) {
    case 0:
        keep(SAY(cuArrayCreate_v2(result, one_in(30) ? NULL : &flat)), &array);
        return;
    case 1:
        keep(SAY(cuArrayCreate(result, &flat_old)), &array);
        return;
    case 2:
        keep(SAY(cuArray3DCreate(result, &deep_old)), &array);
        return;
    default:
        keep(SAY(cuArray3DCreate_v2(result, one_in(30) ? NULL : &wanted)), &array);
    }
}

static void make_mipmap(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = form();
    CUmipmappedArray made = (CUmipmappedArray)UNTOUCHED, *place = ANY(mipmaps);
    unsigned int levels = one_in(6) ? (unsigned int)roll(80) : 1 + (unsigned int)roll(6);
    int result = SAY(cuMipmappedArrayCreate(&made, &wanted, levels));
    KEEP(result, made, place, cuMipmappedArrayDestroy);
}

/* ---- sparse ones ---- */

static const CUDA_ARRAY3D_DESCRIPTOR sparse_form = {.Width = SPARSE_EXTENT,
                                                    .Height = SPARSE_EXTENT,
                                                    .Format = CU_AD_FORMAT_FLOAT,
                                                    .NumChannels = 1,
                                                    .Flags = CUDA_ARRAY3D_SPARSE};

static void make_sparse(void)
{
    CUarray made, *place = ANY(sparse);
    SAY(cuCtxSetCurrent(*ANY(fuzz.primary)));
    if (SAY(cuArray3DCreate_v2(&made, &sparse_form)) != CUDA_SUCCESS)
        return;
    if (*place != NULL)
        SAY(cuArrayDestroy(*place));
    *place = made;
}

static void make_tiles(void)
{
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)roll(GPUS)},
        .allocFlags = {.usage = CU_MEM_CREATE_USAGE_TILE_POOL}};
    CUmemGenericAllocationHandle made = UNTOUCHED, *place = ANY(tiles);
    int result = SAY(cuMemCreate(&made, GRANULE, &wanted, 0));
    KEEP(result, made, place, cuMemRelease);
}

static CUarrayMapInfo tile(bool is_map)
{
    CUarrayMapInfo made = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .resource.array = *ANY(sparse),
                           .subresource.sparseLevel = {.offsetX = (unsigned int)roll(3) * TILE,
                                                       .offsetY = (unsigned int)roll(3) * TILE,
                                                       .extentWidth = TILE,
                                                       .extentHeight = TILE,
                                                       .extentDepth = 1},
                           .memOperationType =
                               is_map ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP,
                           .memHandle.memHandle = is_map ? *ANY(tiles) : 0,
                           .offset = roll(4) * TILE_BYTES,
                           .deviceBitMask = 1u << roll(GPUS)};
    if (one_in(12))
        made.subresource.sparseLevel.offsetX = 77;
    if (one_in(50)) { /* what is mapped as one region and unmapped in others */
        made.subresource.sparseLevel.extentWidth = 2 * TILE;
        is_mixed = true;
    }
    if (one_in(12))
        made.memHandle.memHandle = vmm_any();
    return made;
}

/* Whether something was mapped there since the last rest: what is mapped over it takes its place in
 * the driver, and a place next to it in the ledger. */
static bool *place_of(const CUarrayMapInfo *entry)
{
    int array = 0;
    while (sparse[array] != entry->resource.array)
        array++;
    return &is_taken[array][entry->subresource.sparseLevel.offsetX / TILE]
                    [entry->subresource.sparseLevel.offsetY / TILE];
}

/* Nobody says how much was done of a list that failed: what it maps stays charged. So lists of more
 * than one only unmap. */
static void map_tiles(void)
{
    CUarrayMapInfo list[10];
    unsigned int count = 1 + (unsigned int)roll(one_in(4) ? COUNT(list) : 2);
    bool is_map = count == 1 && one_in(2);
    for (unsigned int i = 0; i < count; i++) {
        list[i] = tile(is_map);
        if (list[i].resource.array == NULL)
            return;
    }
    int result = one_in(2) ? SAY(cuMemMapArrayAsync(list, count, fuzz_stream()))
                           : SAY(cuMemMapArrayAsync_ptsz(list, count, fuzz_stream()));
    if (result == CUDA_SUCCESS && is_map) {
        bool *is_there = place_of(&list[0]);
        is_mixed = is_mixed || *is_there;
        *is_there = true;
    }
}

/* A context has ended: another array may have the handle of one of its own. */
void array_forget(void)
{
    memset(arrays, 0, sizeof arrays);
    memset(mipmaps, 0, sizeof mipmaps);
}

void array_step(void)
{
    CUarray *array = ANY(arrays);
    CUmipmappedArray *mipmap = ANY(mipmaps);
    switch (roll(12)) {
    case 0 ... 2:
        make_array();
        return;
    case 3:
        make_mipmap();
        return;
    case 4 ... 5:
        if (*array != NULL && SAY(cuArrayDestroy(*array)) == CUDA_SUCCESS)
            *array = NULL;
        return;
    case 6:
        if (*mipmap != NULL && SAY(cuMipmappedArrayDestroy(*mipmap)) == CUDA_SUCCESS)
            *mipmap = NULL;
        return;
    case 7:
        make_sparse();
        return;
    case 8:
        make_tiles();
        return;
    default:
        map_tiles();
    }
}

/* Waits for each stream and asks whether it is idle, by unmapping what is not mapped: what leaves a
 * sparse array behind a busy stream stays charged until a call of that kind finds it idle. */
static void ask_streams(void)
{
    for (int i = 0; i < STREAMS; i++) {
        int gpu = i / 2 % GPUS == 0 ? 0 : 1;
        CUarrayMapInfo nothing = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                                  .resource.array = asked[GPUS - 1 - gpu],
                                  .subresource.sparseLevel = {.extentWidth = TILE,
                                                              .extentHeight = TILE,
                                                              .extentDepth = 1},
                                  .memOperationType = CU_MEM_OPERATION_TYPE_UNMAP,
                                  .deviceBitMask = 1u << (GPUS - 1 - gpu)};
        SAY(cuStreamSynchronize(fuzz.streams[i]));
        SAY(cuMemMapArrayAsync(&nothing, 1, fuzz.streams[i]));
    }
}

/* Under a limit of nothing a context that has ended does not come back, and in that one no array
 * can be destroyed. */
static bool is_destroyed(CUarray array)
{
    for (int i = 0; i < GPUS; i++) {
        SAY(cuCtxSetCurrent(fuzz.primary[i]));
        if (SAY(cuArrayDestroy(array)) != CUDA_ERROR_INVALID_CONTEXT)
            return true;
    }
    return false;
}

void array_rest(void)
{
    for (int i = 0; i < GPUS; i++) {
        SAY(cuCtxSetCurrent(fuzz.primary[i]));
        if (asked[i] == NULL)
            SAY(cuArray3DCreate_v2(&asked[i], &sparse_form));
        ask_streams();
    }
    for (size_t i = 0; is_mixed && i < COUNT(sparse); i++) {
        if (sparse[i] != NULL && !is_destroyed(sparse[i]))
            return; /* no context is there: at another rest */
        sparse[i] = NULL;
    }
    if (is_mixed)
        memset(is_taken, 0, sizeof is_taken);
    is_mixed = false;
}
