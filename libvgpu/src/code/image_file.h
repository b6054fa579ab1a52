/* The bytes of a file of device code, in memory of our own: a mapping of the file would fault if
 * somebody cut the file short. */
#ifndef VGPU_IMAGE_FILE_H
#define VGPU_IMAGE_FILE_H

#include <stdbool.h>

#include "code/image_view.h"

/* False for what is no ordinary file, or too large, or cannot be read. */
bool image_file_read(const char *path, struct image_view *view);

void image_file_free(const struct image_view *view);

#endif
