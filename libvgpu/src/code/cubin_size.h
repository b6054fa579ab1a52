/* What an ELF image for the GPU (a cubin) takes. Its sections say: those of variables (.nv.global*,
 * .nv.constant3*) and whatever else is allocated without bytes in the image count as variables,
 * other allocated sections as code. Shared memory is allocated at launches, not with the module.
 * The symbols are asked too, since they need not agree; the larger sum counts. */
#ifndef VGPU_CUBIN_SIZE_H
#define VGPU_CUBIN_SIZE_H

#include "code/image_size.h"

void cubin_size(const struct image_view *view, struct image_size *size);

#endif
