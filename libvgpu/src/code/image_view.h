/* Bytes of an image of device code, read without trusting the image: a call that loads code passes
 * a pointer and no length, and a damaged image claims sizes that it does not have. What lies
 * outside, or is not mapped, is not read. No state; any thread. */
#ifndef VGPU_IMAGE_VIEW_H
#define VGPU_IMAGE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

struct image_view {
    const uint8_t *bytes;
    uint64_t length;
    bool is_foreign; /* not our own buffer: the kernel is asked what is mapped */
};

/* What a caller gave as a bare pointer. */
static inline struct image_view image_view_unbounded(const void *bytes)
{
    return (struct image_view){bytes, UINT64_MAX, true};
}

/* The bytes from `offset` on, `bytes` of which may be read; NULL when some may not. */
const void *image_view_at(const struct image_view *view, uint64_t offset, uint64_t bytes);

/* A piece of the view; false as above. */
bool image_view_part(const struct image_view *view, uint64_t offset, uint64_t bytes,
                     struct image_view *part);

/* The length of the text the view begins with, up to its NUL or what may not be read. */
uint64_t image_view_text_length(const struct image_view *view);

#endif
