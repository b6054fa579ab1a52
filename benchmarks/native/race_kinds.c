/* How each kind of memory is taken and given back by the racing client. Not code: its load is
 * measured, so that one that does not fit is over the limit until it is undone. */
#include <string.h>

#include "race_client.h"

#define MIB (1u << 20)
#define LARGEST_BYTES (4u * MIB)
#define GRANULE (2u * MIB)
#define HEAP_DEFAULT_BYTES (8u * MIB)

static const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

bool race_begin(struct race *race)
{
    CUmemPoolProps wanted = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device};
    MUST(cuInit(0));
    if (!GRANTED(cuDevicePrimaryCtxRetain(&race->context, 0)))
        return false;
    MUST(cuCtxSetCurrent(race->context));
    MUST(cuStreamCreate(&race->stream, 0));
    MUST(cuMemPoolCreate(&race->pool, &wanted));
    return true;
}

static bool take_mapped(struct race *race, struct race_piece *piece)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device};
    piece->bytes = (1 + race_below(race, 3)) * (size_t)GRANULE;
    if (!GRANTED(cuMemCreate(&handle, piece->bytes, &wanted, 0)))
        return false;
    MUST(cuMemAddressReserve(&piece->address, piece->bytes, 0, 0, 0));
    MUST(cuMemMap(piece->address, piece->bytes, 0, handle, 0));
    MUST(cuMemRelease(handle));
    return true;
}

static bool take_array(struct race *race, struct race_piece *piece)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {.Width = 1 + race_below(race, 900),
                                    .Height = 1 + race_below(race, 900),
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                    .NumChannels = 1u << race_below(race, 3)};
    if (piece->kind == RACE_MIPMAP)
        return GRANTED(cuMipmappedArrayCreate((CUmipmappedArray *)&piece->object, &form, 3));
    if (piece->kind == RACE_ARRAY_3D) {
        form.Height = 1 + form.Height / 10;
        form.Depth = 1 + race_below(race, 9);
    }
    return GRANTED(cuArray3DCreate_v2((CUarray *)&piece->object, &form));
}

/* Launches a graph that allocates and leaves it to the program to free. */
static bool take_graph(struct race *race, struct race_piece *piece)
{
    CUgraph graph;
    CUgraphExec executable;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device},
        .bytesize = piece->bytes};
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    bool granted = GRANTED(cuGraphLaunch(executable, race->stream));
    piece->address = params.dptr;
    MUST(cuStreamSynchronize(race->stream));
    MUST(cuGraphExecDestroy(executable));
    MUST(cuGraphDestroy(graph));
    return granted;
}

static bool take_exported(struct race_piece *piece)
{
    CUipcMemHandle handle;
    if (!GRANTED(cuMemAlloc_v2(&piece->address, piece->bytes)))
        return false;
    if (cuIpcGetMemHandle(&handle, piece->address) == CUDA_SUCCESS) /* else: too many exist */
        race_publish(&handle);
    return true;
}

/* What its exporter has freed by now cannot be opened. */
static bool take_imported(struct race *race, struct race_piece *piece)
{
    CUipcMemHandle handle;
    if (!race_look_at(race_below(race, RACE_SEATS), &handle))
        return false;
    int result = cuIpcOpenMemHandle_v2(&piece->address, handle, 1);
    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT ||
        result == CUDA_ERROR_MAP_FAILED)
        return false;
    return race_allowed(result, "cuIpcOpenMemHandle_v2");
}

static bool take_context(struct race *race, struct race_piece *piece)
{
    CUcontext second;
    if (!GRANTED(cuCtxCreate_v2(&second, 0, 0)))
        return false;
    GRANTED(cuMemAlloc_v2(&piece->address, piece->bytes)); /* ends with the context */
    MUST(cuCtxPopCurrent_v2(&second));
    piece->object = second;
    return true;
}

static bool take(struct race *race, struct race_piece *piece)
{
    size_t pitch;
    switch (piece->kind) {
    case RACE_PITCH:
        return GRANTED(cuMemAllocPitch_v2(&piece->address, &pitch, 1 + race_below(race, 3000),
                                          1 + race_below(race, 500), 16));
    case RACE_MANAGED:
        return GRANTED(cuMemAllocManaged(&piece->address, piece->bytes, CU_MEM_ATTACH_GLOBAL));
    case RACE_ASYNC:
        return GRANTED(cuMemAllocAsync(&piece->address, piece->bytes, race->stream));
    case RACE_FROM_POOL:
        return GRANTED(
            cuMemAllocFromPoolAsync(&piece->address, piece->bytes, race->pool, race->stream));
    case RACE_MAPPED:
        return take_mapped(race, piece);
    case RACE_ARRAY:
    case RACE_ARRAY_3D:
    case RACE_MIPMAP:
        return take_array(race, piece);
    case RACE_GRAPH:
        return take_graph(race, piece);
    case RACE_EXPORTED:
        return take_exported(piece);
    case RACE_IMPORTED:
        return take_imported(race, piece);
    case RACE_HEAP:
        return GRANTED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, HEAP_DEFAULT_BYTES + piece->bytes));
    case RACE_CONTEXT:
        return take_context(race, piece);
    default:
        return GRANTED(cuMemAlloc_v2(&piece->address, piece->bytes));
    }
}

void race_take(struct race *race, struct race_piece *piece)
{
    *piece = (struct race_piece){
        .kind = (enum race_kind)(RACE_PLAIN + race_below(race, RACE_KINDS - RACE_PLAIN)),
        .bytes = 1 + race_below(race, LARGEST_BYTES)};
    if (!take(race, piece))
        piece->kind = RACE_NOTHING;
}

void race_give(struct race *race, struct race_piece *piece)
{
    switch (piece->kind) {
    case RACE_NOTHING:
        break;
    case RACE_ASYNC:
    case RACE_FROM_POOL:
        MUST(cuMemFreeAsync(piece->address, race->stream));
        if (race_below(race, 3) == 0)
            MUST(cuStreamSynchronize(race->stream));
        break;
    case RACE_MAPPED:
        MUST(cuMemUnmap(piece->address, piece->bytes));
        MUST(cuMemAddressFree(piece->address, piece->bytes));
        break;
    case RACE_ARRAY:
    case RACE_ARRAY_3D:
        MUST(cuArrayDestroy(piece->object));
        break;
    case RACE_MIPMAP:
        MUST(cuMipmappedArrayDestroy(piece->object));
        break;
    case RACE_IMPORTED:
        MUST(cuIpcCloseMemHandle(piece->address));
        break;
    case RACE_HEAP:
        MUST(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, HEAP_DEFAULT_BYTES));
        break;
    case RACE_CONTEXT:
        MUST(cuCtxDestroy_v2(piece->object));
        break;
    default:
        MUST(cuMemFree_v2(piece->address));
    }
    piece->kind = RACE_NOTHING;
}

void race_give_all(struct race *race)
{
    for (int i = 0; i < RACE_PIECES; i++)
        if (race_below(race, 2)) /* some stay, so that the slice is never empty */
            race_give(race, &race->pieces[i]);
}

void race_trim(struct race *race)
{
    CUmemoryPool standard;
    MUST(cuCtxSynchronize());
    MUST(cuDeviceGetDefaultMemPool(&standard, 0));
    MUST(cuMemPoolTrimTo(standard, 0));
    MUST(cuMemPoolTrimTo(race->pool, 0));
    MUST(cuDeviceGraphMemTrim(0));
}
