/*
 * The graph memory of a device: a pool, and the grants in it, which are what executable graphs have
 * for the allocations that they free themselves (graph_memory.h says how they come by it). All of it
 * needs graph_memory_mutex.
 */
#ifndef VGPU_SIM_GRAPH_GRANT_H
#define VGPU_SIM_GRAPH_GRANT_H

#include "driver.h"

struct graph_pool;
struct graph_grant;

extern pthread_mutex_t graph_memory_mutex;

struct graph_pool *graph_pool_of(struct driver_device *device);
/* The same as a pool of allocations. */
struct CUmemPoolHandle_st *graph_pool_handle(struct graph_pool *pool);
/* Counts bytes as used; false when the device has too few, not even in grants without launches. */
bool graph_pool_use(struct graph_pool *pool, uint64_t bytes);
void graph_pool_leave(struct graph_pool *pool, uint64_t bytes);
/* Has an executable graph own a grant of so many bytes for its way through a stream; NULL: no
 * memory. */
struct graph_grant *graph_grant_take(struct graph_pool *pool, unsigned long long owner,
                                     unsigned long long stream_id, uint64_t bytes);
/* Around a launch of its owner. */
void graph_grant_begin(struct graph_pool *pool, struct graph_grant *grant,
                       unsigned long long stream_id);
void graph_grant_end(struct graph_grant *grant);

#endif
