#include "code/image_size.h"

#include <string.h>

#include "code/cubin_size.h"
#include "code/fatbin_size.h"
#include "code/ptx_size.h"

#define ELF_MAGIC 0x464c457fu
#define MOST_LEADING_BLANKS 64 /* looked at; behind so many it can only be text */

void image_size_add_variable(struct image_size *size, uint64_t bytes, uint64_t alignment)
{
    uint64_t step = alignment > IMAGE_GRANULE_BYTES ? alignment : IMAGE_GRANULE_BYTES;
    if (bytes >= IMAGE_MOST_BYTES || step >= IMAGE_MOST_BYTES)
        bytes = IMAGE_MOST_BYTES;
    else
        bytes = (bytes + step - 1) / step * step;
    size->variable_bytes += bytes;
    if (size->variable_bytes > IMAGE_MOST_BYTES)
        size->variable_bytes = IMAGE_MOST_BYTES;
}

static void raise(uint64_t *value, uint64_t other)
{
    if (*value < other)
        *value = other;
}

void image_size_raise(struct image_size *size, const struct image_size *other)
{
    raise(&size->variable_bytes, other->variable_bytes);
    raise(&size->code_bytes, other->code_bytes);
    raise(&size->image_bytes, other->image_bytes);
    size->is_unknown |= other->is_unknown;
}

/* Every PTX text begins with a directive, after blanks and comments. */
static bool looks_like_text(const struct image_view *view)
{
    for (uint64_t i = 0; i < MOST_LEADING_BLANKS; i++) {
        const uint8_t *at = image_view_at(view, i, 1);
        if (at == NULL)
            return false;
        if (*at != ' ' && *at != '\t' && *at != '\r' && *at != '\n')
            return *at == '.' || *at == '/';
    }
    return true;
}

struct image_size image_size(const struct image_view *view, uint32_t architecture)
{
    struct image_size size = {0};
    uint32_t magic = 0;
    const void *start = image_view_at(view, 0, sizeof magic);
    if (start != NULL)
        memcpy(&magic, start, sizeof magic);
    if (magic == ELF_MAGIC)
        cubin_size(view, &size);
    else if (fatbin_size_is(magic))
        fatbin_size(view, architecture, &size);
    else if (looks_like_text(view))
        ptx_size(view, &size);
    else
        size.is_unknown = true;
    if (view->length != UINT64_MAX)
        size.image_bytes = view->length;
    return size;
}
