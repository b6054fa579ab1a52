#include "array_mapping.h"

#include <stdlib.h>
#include <string.h>

#include "twins.h"

/* One mapped tile, or all of an array with deferred mapping. */
struct array_tile {
    struct tile_box place; /* one tile wide, high and deep */
    struct physical *physical;
    struct array_tile *next;
};

static struct array_mappings *all_mappings; /* of arrays that live */

/* ---- lists of tiles -------------------------------------------------------------------------- */

static void drop_tile_locked(struct array_tile *tile)
{
    tile->physical->mappings--;
    physical_drop_locked(tile->physical);
    free(tile);
}

static void drop_all_locked(struct array_tile **tiles)
{
    while (*tiles) {
        struct array_tile *tile = *tiles;
        *tiles = tile->next;
        drop_tile_locked(tile);
    }
}

static bool inside(uint64_t at, uint64_t first, uint64_t count)
{
    return at >= first && at - first < count;
}

static bool box_holds(const struct tile_box *box, const struct tile_box *place)
{
    return box->tail == place->tail && box->level == place->level && box->layer == place->layer &&
           inside(place->x, box->x, box->width) && inside(place->y, box->y, box->height) &&
           inside(place->z, box->z, box->depth);
}

static void drop_box_locked(struct array_mappings *mappings, const struct tile_box *box)
{
    for (struct array_tile **at = &mappings->tiles; *at;) {
        struct array_tile *tile = *at;
        if (box_holds(box, &tile->place)) {
            *at = tile->next;
            drop_tile_locked(tile);
        } else {
            at = &tile->next;
        }
    }
}

/* Adds a tile for each place of a box; the memory counts as mapped from now on. */
static bool make_tiles_locked(struct array_tile **tiles, const struct tile_box *box,
                              struct physical *physical)
{
    for (uint64_t i = 0; i < box->width * box->height * box->depth; i++) {
        struct array_tile *tile = malloc(sizeof *tile);
        if (!tile)
            return false;
        *tile = (struct array_tile){.place = *box, .physical = physical, .next = *tiles};
        tile->place.x += i % box->width;
        tile->place.y += i / box->width % box->height;
        tile->place.z += i / box->width / box->height;
        physical->mappings++;
        *tiles = tile;
    }
    return true;
}

/* ---- mappings of an array -------------------------------------------------------------------- */

struct array_mappings *array_mappings_make(struct CUctx_st *context)
{
    struct array_mappings *mappings = malloc(sizeof *mappings);
    if (!mappings)
        return NULL;
    *mappings =
        (struct array_mappings){.context = context, .context_id = context->id, .references = 1};
    pthread_mutex_lock(&vmm_mutex);
    mappings->next = all_mappings;
    all_mappings = mappings;
    pthread_mutex_unlock(&vmm_mutex);
    return mappings;
}

bool array_mappings_alive(const struct array_mappings *mappings)
{
    return mappings->context->alive && mappings->context->id == mappings->context_id;
}

static void let_go_locked(struct array_mappings *mappings)
{
    if (--mappings->references == 0)
        free(mappings);
}

void array_mappings_end(struct array_mappings *mappings)
{
    pthread_mutex_lock(&vmm_mutex);
    for (struct array_mappings **at = &all_mappings; *at; at = &(*at)->next)
        if (*at == mappings) {
            *at = mappings->next;
            break;
        }
    mappings->dead = true;
    drop_all_locked(&mappings->tiles);
    let_go_locked(mappings);
    pthread_mutex_unlock(&vmm_mutex);
}

/* The handles of the arrays live on, so what is known of each does, too. */
void array_mappings_end_context(const struct CUctx_st *context)
{
    pthread_mutex_lock(&vmm_mutex);
    for (struct array_mappings *mappings = all_mappings; mappings; mappings = mappings->next)
        if (mappings->context == context && mappings->context_id == context->id) {
            mappings->dead = true;
            drop_all_locked(&mappings->tiles);
        }
    pthread_mutex_unlock(&vmm_mutex);
}

/* ---- map operations -------------------------------------------------------------------------- */

struct step {
    struct array_mappings *mappings;
    struct tile_box box;
    struct array_tile *tiles; /* to be mapped there; none: the box is unmapped */
};

struct batch {
    unsigned int count;
    struct step steps[];
};

static void run_batch(void *argument)
{
    struct batch *batch = argument;
    pthread_mutex_lock(&vmm_mutex);
    for (unsigned int i = 0; i < batch->count; i++) {
        struct step *step = &batch->steps[i];
        drop_box_locked(step->mappings, &step->box);
        struct array_tile **end = &step->tiles;
        while (*end)
            end = &(*end)->next;
        *end = step->mappings->tiles;
        step->mappings->tiles = step->tiles;
        if (step->mappings->dead)
            drop_all_locked(&step->mappings->tiles);
        let_go_locked(step->mappings);
    }
    pthread_mutex_unlock(&vmm_mutex);
    free(batch);
}

static void give_up_batch_locked(struct batch *batch)
{
    for (unsigned int i = 0; i < batch->count; i++) {
        drop_all_locked(&batch->steps[i].tiles);
        let_go_locked(batch->steps[i].mappings);
    }
    free(batch);
}

/* The array of an operation and how it is laid out; the driver does not take a level of one. */
static CUresult array_of(const CUarrayMapInfo *operation, struct array_mappings **mappings,
                         const struct CUarray_st **levels, uint32_t *level_count)
{
    if (operation->resourceType == CU_RESOURCE_TYPE_ARRAY) {
        const struct CUarray_st *array = operation->resource.array;
        CHECK(array_check(array));
        *mappings = array->level ? NULL : array->mappings;
        *levels = array;
        *level_count = 1;
    } else if (operation->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        const struct CUmipmappedArray_st *mipmap = operation->resource.mipmap;
        CHECK(mipmap_check(mipmap));
        *mappings = mipmap->levels[0].mappings;
        *levels = mipmap->levels;
        *level_count = mipmap->level_count;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return *mappings ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The memory that an operation maps has to be made for tiles, and lie on the stream's device. */
static struct physical *tile_pool_locked(const CUarrayMapInfo *operation,
                                         const struct driver_device *device, uint64_t bytes)
{
    struct physical *physical = operation->memHandleType == CU_MEM_HANDLE_TYPE_GENERIC
                                    ? physical_find_locked(operation->memHandle.memHandle)
                                    : NULL;
    return physical && physical->device == device &&
                   physical->properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL &&
                   operation->offset <= physical->bytes &&
                   bytes <= physical->bytes - operation->offset
               ? physical
               : NULL;
}

/* Turns an operation into a step, which refers to its array and holds the memory it maps. */
static CUresult prepare_locked(const CUarrayMapInfo *operation, const struct driver_device *device,
                               struct step *step)
{
    const struct CUarray_st *levels;
    uint32_t level_count;
    CHECK(array_of(operation, &step->mappings, &levels, &level_count));
    bool sparse = array_is_sparse(&levels[0].form);
    uint64_t bytes = array_cost(levels, level_count), step_bytes = DRIVER_ALLOCATION_ROUND;
    step->box = (struct tile_box){.width = 1, .height = 1, .depth = 1};
    if (sparse) {
        INVALID_IF(!array_tile_box(operation, levels, level_count, &step->box));
        step_bytes = ARRAY_TILE_BYTES;
        bytes = step->box.width * step->box.height * step->box.depth * ARRAY_TILE_BYTES;
    }
    INVALID_IF(operation->flags || operation->reserved[0] || operation->reserved[1] ||
               operation->deviceBitMask != 1u << device->ordinal);
    if (operation->memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
        struct physical *physical =
            operation->offset % step_bytes ? NULL : tile_pool_locked(operation, device, bytes);
        INVALID_IF(!physical);
        if (!make_tiles_locked(&step->tiles, &step->box, physical)) {
            drop_all_locked(&step->tiles);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    } else if (operation->memOperationType != CU_MEM_OPERATION_TYPE_UNMAP ||
               operation->memHandle.memHandle) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    step->mappings->references++;
    return CUDA_SUCCESS;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *operations, unsigned int count, CUstream handle)
{
    RESOLVE_STREAM(stream, handle);
    CUresult result = CUDA_SUCCESS;
    INVALID_IF(!operations || count == 0);
    if (stream_capture(stream))
        return capture_refuse(stream);
    struct batch *batch = calloc(1, sizeof *batch + count * sizeof batch->steps[0]);
    REFUSE_IF(!batch, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&vmm_mutex);
    while (result == CUDA_SUCCESS && batch->count < count) {
        result = prepare_locked(&operations[batch->count], stream->context->device,
                                &batch->steps[batch->count]);
        if (result == CUDA_SUCCESS)
            batch->count++;
    }
    if (result != CUDA_SUCCESS)
        give_up_batch_locked(batch);
    pthread_mutex_unlock(&vmm_mutex);
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream_calls_pending()) {
        run_batch(batch);
        return CUDA_SUCCESS;
    }
    result = stream_call(stream, run_batch, batch);
    if (result != CUDA_SUCCESS) {
        pthread_mutex_lock(&vmm_mutex);
        give_up_batch_locked(batch);
        pthread_mutex_unlock(&vmm_mutex);
    }
    return result;
}

TWIN(cuMemMapArrayAsync_ptsz, (CUarrayMapInfo * operations, unsigned int count, CUstream stream),
     cuMemMapArrayAsync(operations, count, OWN(stream)))
