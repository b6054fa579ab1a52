/* The variables of a PTX text: what .global and .const declare, whatever they are inside of. What
 * is only declared (.extern) takes nothing. Memory of kernels (.shared, .local) is not counted. */
#ifndef VGPU_PTX_SIZE_H
#define VGPU_PTX_SIZE_H

#include "code/image_size.h"

void ptx_size(const struct image_view *view, struct image_size *size);

#endif
