/* Arrays whose memory is mapped in later, each life of a handle under a number of its own: a handle
 * may be given out again before we have heard of its end. They stand in the map of allocations,
 * with an owner that ends what is mapped into them, so that destroying the array or its context
 * does.
 *
 * One lock, for arrays that nobody told us of; under it only the map's and that of vmm.h. */
#ifndef VGPU_SPARSE_ARRAY_H
#define VGPU_SPARSE_ARRAY_H

#include <stdint.h>

/* The driver has just made such an array or mipmapped array, in the current context. */
void sparse_array_made(uint64_t array);

/* The number of its present life. An array that nobody told us of ends when it is destroyed; 0,
 * which never ends: it is no such array. */
uint64_t sparse_array_life(uint64_t array);

/* For fork.c. */
void sparse_array_after_fork(void);

#endif
