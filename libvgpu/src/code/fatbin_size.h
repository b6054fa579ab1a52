/* What a fat binary takes: a bundle of images of the same code for several GPUs, or the wrapper
 * that points to one. Of machine code the driver takes the newest that the GPU can run, else the
 * newest PTX, and the program can make it prefer PTX: so the larger of the two counts. Payloads are
 * plain, or packed with LZ4 or (since CUDA 13) zstd. */
#ifndef VGPU_FATBIN_SIZE_H
#define VGPU_FATBIN_SIZE_H

#include "code/image_size.h"

/* Whether an image begins so, read as a little-endian word. */
bool fatbin_size_is(uint32_t first_word);

void fatbin_size(const struct image_view *view, uint32_t architecture, struct image_size *size);

#endif
