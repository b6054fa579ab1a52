/* The pools that the host has of its own: one without a place, one a NUMA node. Each is made when
 * it is first asked for. */
#include "driver.h"

#define NODES_MAX 64

struct place {
    struct CUmemPoolHandle_st own;
    struct CUmemPoolHandle_st *current;
};

static struct place places[1 + NODES_MAX];

/* The machine has the nodes that its GPUs are near to, and node 0. */
static bool has_node(int node)
{
    bool known = node == 0;
    for (int i = 0; i < driver.device_count && !known; i++)
        known = driver.devices[i].identity->numa_node == node;
    return known && node >= 0 && node < NODES_MAX;
}

static struct place *find_locked(const CUmemLocation *location)
{
    bool anywhere = location->type == CU_MEM_LOCATION_TYPE_HOST; /* then its number means nothing */
    if (!anywhere && !has_node(location->id))
        return NULL;
    struct place *place = &places[anywhere ? 0 : 1 + location->id];
    if (!place->own.magic) {
        pool_initialise(&place->own, &driver.devices[0]);
        place->own.location =
            (CUmemLocation){.type = location->type, .id = anywhere ? 0 : location->id};
        place->current = &place->own;
        pool_insert_locked(&place->own);
    }
    return place;
}

CUresult pool_host_get(CUmemoryPool *pool, const CUmemLocation *location, bool default_one)
{
    INVALID_IF(!pool);
    pthread_mutex_lock(&memory_mutex);
    struct place *place = find_locked(location);
    if (place)
        *pool = default_one ? &place->own : place->current;
    pthread_mutex_unlock(&memory_mutex);
    return place ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult pool_host_set(const CUmemLocation *location, struct CUmemPoolHandle_st *pool)
{
    INVALID_IF(
        !pool_valid(pool) || pool->location.type != location->type ||
        (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && pool->location.id != location->id));
    pthread_mutex_lock(&memory_mutex);
    struct place *place = find_locked(location);
    if (place)
        place->current = pool;
    pthread_mutex_unlock(&memory_mutex);
    return place ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

bool pool_host_owns(const struct CUmemPoolHandle_st *pool)
{
    return (const char *)pool >= (const char *)places &&
           (const char *)pool < (const char *)(places + 1 + NODES_MAX);
}

void pool_host_forget_locked(const struct CUmemPoolHandle_st *pool)
{
    for (int i = 0; i < 1 + NODES_MAX; i++)
        if (places[i].current == pool)
            places[i].current = &places[i].own;
}
