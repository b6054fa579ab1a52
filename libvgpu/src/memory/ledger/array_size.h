/* How much device memory a CUDA array can take, from its descriptor alone: for drivers that cannot
 * be asked before they make it (hook_array.c). Pure. */
#ifndef VGPU_ARRAY_SIZE_H
#define VGPU_ARRAY_SIZE_H

#include <stdint.h>

#include "vgpu/cuda_array.h"

/* An upper bound in bytes of an array of that form, mipmapped with `levels` levels (0: an ordinary
 * array). UINT64_MAX when it does not fit into 64 bits. */
uint64_t array_size_bound(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int levels);

#endif
